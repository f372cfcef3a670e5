#include "tidemark/engine/event_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

using namespace tidemark;

TEST_CASE("event queue: by time, then host sequence, over three streams and a long backlog") {
  const std::array<Stream, 3> streams = {Stream::copy_in, Stream::copy_out, Stream::comm};
  EventQueue queue;
  CHECK(queue.next_time() == EventQueue::never);
  std::vector<Pending> waiting;
  const auto before = [](const Pending& a, const Pending& b) {
    return std::tie(a.time, a.sequence) < std::tie(b.time, b.sequence);
  };
  std::uint32_t sequence = 0;
  std::array<std::int64_t, 3> clocks{};
  std::size_t wrong = 0;
  const auto pop = [&] {
    const auto first = std::ranges::min_element(waiting, before);
    wrong += static_cast<std::size_t>(queue.next_time() != first->time || queue.pop() != *first);
    waiting.erase(first);
  };
  // Three in, two out: the backlog grows to thousands; then all of it.
  for (std::uint32_t i = 0; i < 6000; ++i) {
    const std::size_t s = i * 7 % 3;
    clocks[s] += i % 5 == 0 ? i % 11 : 0;  // many equal times
    const Pending pending{Nanos{clocks[s]}, sequence++, i, i / 2, Pending::What::free};
    queue.push(streams[s], pending);
    waiting.push_back(pending);
    if (i % 3 != 0) pop();
  }
  CHECK(waiting.size() == 2000);
  while (!waiting.empty()) pop();
  CHECK(wrong == 0);
  CHECK(queue.next_time() == EventQueue::never);
}
