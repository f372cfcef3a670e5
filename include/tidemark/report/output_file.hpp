/// Where does a result go, so that it appears whole or not at all?
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

/// A file under construction. What is written goes to a temporary file beside the target; `commit` makes it durable
/// and gives it its name. Without a commit the target stays as it was. "-" is standard output, and a target that is no
/// regular file (a pipe, /dev/null) is written directly. Every failure throws OutputError naming the target.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::string_view text);
  void commit();
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void close_now() noexcept;
  std::string path_;       // as the user wrote it
  std::string target_;     // what it names, symbolic links followed
  std::string temporary_;  // empty: writing directly
  int descriptor_ = -1;
  bool owns_descriptor_ = true;
};

}  // namespace tidemark
