#include "tidemark/report/timeline_json.hpp"

#include <array>

#include "text_buffer.hpp"
#include "tidemark/report/peak.hpp"

namespace tidemark {
namespace {

// torch/profiler/_memory_profiler.py: values of Action, and places in _CATEGORY_TO_COLORS.
constexpr int preexisting = 1;
constexpr int create = 2;
constexpr int destroy = 4;

constexpr int torch_category(Category category) {
  // in the order of Category
  constexpr std::array<int, category_names.size()> places = {0, 5, 1, 2, 4, 3, 6, 7};
  return places[static_cast<std::size_t>(category)];
}

}  // namespace

void write_timeline_json(const Step& step, const Timeline& timeline, const TextSink& sink) {
  TextBuffer out(sink);
  out.text("[");
  const std::int16_t rank = peak_rank(step, timeline);
  bool first = true;
  for (const MemoryEvent& event : timeline.events) {
    const StepStorage& storage = step.storages[event.storage];
    if (storage.rank != rank) continue;
    const bool initial = event.op() == no_id;
    const int action = initial ? preexisting : event.is_alloc() ? create : destroy;
    out.text(first ? "\n[" : ",\n[").number(initial ? -1 : event.time.count).text(", ").number(action).text(", ");
    out.number(event.is_alloc() ? storage.bytes.count : -storage.bytes.count).text(", ");
    out.number(torch_category(storage.category)).text("]");
    first = false;
  }
  out.text("\n]\n");
  out.flush();
}

}  // namespace tidemark
