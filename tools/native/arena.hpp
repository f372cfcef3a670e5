/// Where does the native step's memory come from, and how much of it is in use?
///
/// One range of addresses, handed out in blocks and taken back. After a first run every block that a step needs has
/// been carved out and touched, so that a measured step asks the system for nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidemark::native {

class Arena {
 public:
  /// Reserves addresses; memory is taken when it is first touched. Throws std::bad_alloc where even that is refused.
  explicit Arena(std::size_t reserve_bytes = std::size_t{1} << 36);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A block of at least `bytes`, aligned to 64. Throws std::bad_alloc when the range is used up.
  void* take(std::int64_t bytes);
  void give_back(void* block, std::int64_t bytes);

  /// Bytes asked for and not given back, and the most there have been since `forget_high_water`.
  std::int64_t live_bytes() const { return live_; }
  std::int64_t high_water_bytes() const { return high_water_; }
  void forget_high_water() { high_water_ = live_; }
  /// How much of the range has ever been handed out; a warm arena stays where it is.
  std::size_t carved_bytes() const { return carved_; }

  /// Fills every block with NaNs when it is handed out and when it comes back, so that reading either shows.
  void poison(bool on) { poison_ = on; }

 private:
  /// Blocks of one size that have come back; each holds the address of the next.
  struct Shelf {
    std::size_t bytes = 0;
    void* first = nullptr;
  };
  Shelf& shelf(std::size_t bytes);

  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0, carved_ = 0;
  std::vector<Shelf> shelves_;  // by size, ascending
  std::int64_t live_ = 0, high_water_ = 0;
  bool poison_ = false;
};

}  // namespace tidemark::native
