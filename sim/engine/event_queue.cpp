#include "tidemark/engine/event_queue.hpp"

#include <tuple>

namespace tidemark {

void EventQueue::push(Stream stream, const Pending& pending) {
  Fifo& fifo = streams_[static_cast<std::size_t>(stream)];
  const bool was_empty = fifo.empty();
  fifo.items.push_back(pending);
  if (was_empty) find_next();
}

Pending EventQueue::pop() {
  Fifo& fifo = streams_[next_stream_];
  const Pending front = fifo.front();
  ++fifo.head;
  // Drop what has been popped once it is most of the vector: constant time a pop, memory like the backlog.
  constexpr std::size_t worth_moving = 1024;
  if (fifo.empty()) {
    fifo.items.clear();
    fifo.head = 0;
  } else if (fifo.head >= worth_moving && fifo.head > fifo.items.size() / 2) {
    fifo.items.erase(fifo.items.begin(), fifo.items.begin() + static_cast<std::ptrdiff_t>(fifo.head));
    fifo.head = 0;
  }
  find_next();
  return front;
}

void EventQueue::find_next() {
  const Pending* next = nullptr;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (streams_[s].empty()) continue;
    const Pending& front = streams_[s].front();
    if (next == nullptr || std::tie(front.time, front.sequence) < std::tie(next->time, next->sequence)) {
      next = &front;
      next_stream_ = s;
    }
  }
  next_time_ = next == nullptr ? never : next->time;
}

}  // namespace tidemark
