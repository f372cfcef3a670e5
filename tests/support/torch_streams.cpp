#include "torch_streams.hpp"

#include <algorithm>
#include <map>

namespace tidemark::test {

std::vector<std::string> events_of(const Step& step, std::size_t live) {
  std::vector<std::string> out;
  std::map<StorageId, std::size_t> number;
  for (const Instruction& i : step.instructions) {
    if (i.op != no_id && step.ops[i.op].step + 1 != step.steps) continue;
    if (i.what == Do::alloc) {
      number.emplace(i.index, live + number.size());
      out.push_back("+" + to_string(step.storages[i.index].bytes));
    } else if (i.what == Do::free) {
      const auto found = number.find(i.index);
      out.push_back(found == number.end() ? "-?" : "-" + std::to_string(found->second));
    }
  }
  return out;
}

std::string difference(const std::vector<std::string>& simulated, const std::vector<std::string>& recorded) {
  const std::size_t shorter = std::min(simulated.size(), recorded.size());
  std::size_t at = 0;
  while (at < shorter && simulated[at] == recorded[at]) ++at;
  if (at == simulated.size() && at == recorded.size()) return "";
  const auto around = [&](const std::vector<std::string>& list) {
    std::string text;
    for (std::size_t i = at < 4 ? 0 : at - 4; i < std::min(list.size(), at + 5); ++i)
      text += (i == at ? " >" : " ") + list[i];
    return text;
  };
  return "event " + std::to_string(at) + " of " + std::to_string(recorded.size()) + ": simulated" + around(simulated) +
         ", recorded" + around(recorded);
}

}  // namespace tidemark::test
