/// What does PyTorch's CUDA caching allocator take from the device for a sequence of requests?
///
/// The rules of c10/cuda/CUDACachingAllocator.cpp (2.6), request by request, on a device whose addresses grow and never
/// come back: every block, every counter, every retry. One cudaMalloc is called a *reservation* here ("segment" in
/// PyTorch, which is a group of layers in Tidemark).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/engine/allocator.hpp"
#include "tidemark/engine/free_list.hpp"

namespace tidemark {

/// PYTORCH_CUDA_ALLOC_CONF, key by key, and the device it runs on.
struct CachingSettings {
  /// By size: [0] up to 2 MiB, [1] up to 4 MiB, ..., [15] from 32 GiB; 0 and 1 round to 512 B.
  using Divisions = std::array<std::int64_t, 16>;

  std::optional<Bytes> capacity;        // all of the device; without one nothing ever fails
  std::optional<Bytes> available;       // what this process can get of it; the capacity when not given
  std::optional<Bytes> max_split_size;  // blocks of at least this are not split, nor given to smaller requests
  Divisions roundup_power2_divisions{};
  double garbage_collection_threshold = 0;  // of the memory limit; 0 is never
  bool expandable_segments = false;
  Bytes max_non_split_rounding{20 << 20};
  std::optional<double> memory_fraction;  // of the capacity
  friend bool operator==(const CachingSettings&, const CachingSettings&) = default;
};

/// A running figure, and what it has been.
template <class Amount>
struct Counter {
  Amount current{}, peak{}, allocated{};  // allocated: all that was ever added
  Amount freed() const { return allocated - current; }
  void add(Amount amount) {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  void subtract(Amount amount) { current -= amount; }
  friend bool operator==(const Counter&, const Counter&) = default;
};

/// Requests up to 1 MiB live in reservations of their own.
enum class Pool : std::uint8_t { large, small };

/// A counter for each pool, and for both together.
template <class Amount>
struct PoolCounters {
  std::array<Counter<Amount>, 2> by_pool;
  Counter<Amount> all;
  const Counter<Amount>& operator[](Pool pool) const { return by_pool[static_cast<std::size_t>(pool)]; }
  void add(Pool pool, Amount amount) {
    by_pool[static_cast<std::size_t>(pool)].add(amount);
    all.add(amount);
  }
  void subtract(Pool pool, Amount amount) {
    by_pool[static_cast<std::size_t>(pool)].subtract(amount);
    all.subtract(amount);
  }
  /// Adds what is positive, takes away what is negative.
  void change(Pool pool, Amount amount) {
    if (amount > Amount{}) add(pool, amount);
    if (amount < Amount{}) subtract(pool, Amount{} - amount);
  }
  friend bool operator==(const PoolCounters&, const PoolCounters&) = default;
};

/// torch.cuda.memory_stats().
struct CachingCounters {
  using Count = std::int64_t;
  PoolCounters<Bytes> requested_bytes;       // as asked, of active blocks
  PoolCounters<Bytes> allocated_bytes;       // blocks handed out
  PoolCounters<Bytes> active_bytes;          // and those that wait for another stream
  PoolCounters<Bytes> reserved_bytes;        // taken from the device
  PoolCounters<Bytes> inactive_split_bytes;  // free parts of reservations in use; none when expandable
  PoolCounters<Count> allocations, active, reservations, inactive_splits;
  Counter<Count> oversize_allocations, oversize_reservations;  // of at least max_split_size
  Count retries = 0;                                           // all cached blocks given back, then asked again
  Count out_of_memory = 0;
  Count synchronizations = 0;
  Count device_allocs = 0, device_frees = 0;
  friend bool operator==(const CachingCounters&, const CachingCounters&) = default;
};

/// One contiguous stretch of device memory and its blocks in address order, as in torch.cuda.memory_snapshot().
struct Reservation {
  enum class State : std::uint8_t { allocated, pending_free, free };
  struct Block {
    BlockId id = 0;
    std::int64_t address = 0;
    Bytes size, requested;
    State state = State::free;
    friend bool operator==(const Block&, const Block&) = default;
  };
  std::int64_t address = 0;
  Bytes size;
  std::uint32_t stream = 0;
  Pool pool = Pool::large;
  bool expandable = false;
  std::vector<Block> blocks;
  friend bool operator==(const Reservation&, const Reservation&) = default;
};

class CachingAllocator {
 public:
  /// A stream's number; small, since each has lists of its own. Allocations of stream 0 come before those of stream 1.
  using StreamId = std::uint32_t;

  explicit CachingAllocator(const CachingSettings& settings);

  /// `bytes` > 0. Nothing when out of memory: the cache is empty then, and `shortage` tells more.
  std::optional<BlockId> allocate(Bytes bytes, StreamId stream = 0);
  /// The block's memory may be handed out again, at once or when all recorded streams have passed.
  void free(BlockId block);
  /// The block is used on `stream` too.
  void record_stream(BlockId block, StreamId stream);
  /// The oldest `events` frees that wait for `stream` have been reached. Seen at the next request, as in PyTorch.
  void stream_passed(StreamId stream, std::size_t events = 1);
  void all_streams_passed();
  /// Waits for every stream and gives whole free reservations back to the device.
  void empty_cache();
  void set_memory_fraction(double fraction);

  const CachingCounters& counters() const { return counters_; }
  Bytes size(BlockId block) const { return blocks_[block].size; }
  std::int64_t address(BlockId block) const { return blocks_[block].address; }
  /// Everything taken from the device, in address order.
  std::vector<Reservation> reservations() const;
  /// About a request that failed just now.
  Shortage shortage(Bytes bytes, StreamId stream = 0) const;
  /// The block size that `bytes` is rounded to.
  Bytes rounded(Bytes bytes) const;

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  static constexpr Bytes smallest_block{512};
  static constexpr Bytes small_limit{1 << 20};       // a request above it goes to the large pool
  static constexpr Bytes own_reservation{10 << 20};  // a request from here on gets a reservation of its own size

  struct Block {
    std::int64_t address = 0;
    Bytes size{}, requested{};
    std::int64_t inserted_at = 0;  // searches of the pool before it was last put into a free list
    BlockId previous = none, next = none;
    StreamId stream = 0;
    std::int32_t events = 0;     // streams it still waits for
    std::uint32_t range = none;  // expandable range it lies in
    Pool pool = Pool::large;
    bool allocated = false;
    bool mapped = true;     // backed by memory; never false outside expandable ranges
    bool recorded = false;  // used on other streams
    bool is_split() const { return previous != none || next != none; }
    bool is_free() const { return !allocated && events == 0 && !recorded; }
  };
  struct StreamLists {
    FreeList free;
    std::set<std::pair<std::int64_t, BlockId>> unmapped;  // by address
  };
  struct PoolLists {
    std::vector<StreamLists> streams;
    std::int64_t searches = 0;
  };
  /// Addresses set aside for one stream and pool, of which whole pages get memory.
  struct Range {
    std::int64_t address = 0;
    Bytes size;
    Bytes page;
  };
  struct Request {
    Bytes bytes{}, size{}, reservation{};
    StreamId stream = 0;
    Pool pool = Pool::large;
    BlockId found = none;
  };

  // Requests, in the order a request tries them.
  void process_events();
  bool find_free(Request& request);
  void collect_garbage();
  bool reserve(Request& request);
  bool release_oversize(const Request& request);
  void release_cached();
  static Bytes reservation_for(Bytes size);
  bool should_split(const Block& block, Bytes size) const;
  BlockId hand_out(const Request& request);
  BlockId split_front(BlockId rest, Bytes size);

  // Blocks.
  StreamLists& lists(const Block& block) { return lists(block.pool, block.stream); }
  StreamLists& lists(Pool pool, StreamId stream);
  BlockId new_block(const Block& block);
  void insert_free(BlockId block);
  void erase_free(BlockId block);
  Bytes merge(BlockId into, BlockId neighbour);
  void link_between(BlockId block, BlockId previous, BlockId next);
  void make_free(BlockId block);
  void give_back(BlockId block);
  void release_pool(Pool pool);
  void wait_for_events();
  Bytes device_left() const;
  Bytes rounded_down(Bytes block) const;
  bool would_serve(Bytes bytes, StreamId stream) const;
  Bytes expandable_size(const Block& block) const;
  bool may_hand_out(Bytes block, Bytes request) const;

  // Expandable ranges.
  BlockId reserve_expandable(const Request& request);
  BlockId find_expandable(const Request& request);
  bool has_room(BlockId from, Bytes size) const;
  bool map(BlockId block, Bytes size);
  void unmap(BlockId block);

  CachingSettings settings_;
  std::optional<Bytes> limit_;  // memory fraction in bytes
  std::int64_t next_address_ = std::int64_t{1} << 32;
  std::vector<Block> blocks_;
  std::vector<BlockId> spare_;  // places of dropped blocks
  std::vector<Range> ranges_;
  std::array<PoolLists, 2> pools_;
  std::map<BlockId, std::vector<StreamId>> recorded_;
  struct Waiting {
    std::deque<BlockId> blocks;
    std::size_t passed = 0;  // of them, from the front
  };
  std::map<StreamId, Waiting> waiting_;
  bool some_passed_ = false;
  CachingCounters counters_;
};

}  // namespace tidemark
