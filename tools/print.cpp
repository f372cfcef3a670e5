#include "commands.hpp"
#include "tidemark/report/output_file.hpp"

namespace tidemark::cli {

void print(const std::string& text) {
  OutputFile out("-");
  out.write(text);
  out.commit();
}

}  // namespace tidemark::cli
