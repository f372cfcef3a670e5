/// How few forward steps reverse a uniform chain with a given number of checkpoint slots?
#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

/// Griewank and Walther 2000: forward steps in all, the one before each backward included; the slot that holds step 0
/// counts. n >= 1, slots >= 1.
std::int64_t revolve_forward_steps(std::int64_t n, std::int64_t slots);

/// A schedule that attains it, as a rotor sequence.
std::string revolve_sequence(std::int64_t n, std::int64_t slots);

/// Maddison 2024: a unit holds either restart data or the adjoint data of one step.
std::int64_t mixed_forward_steps(std::int64_t n, std::int64_t units);

/// Two levels (Herrmann and Pallez 2020, H-Revolve): least makespan with `ram` free slots and `disk` slots with write
/// and read costs. Costs in any unit.
struct TwoLevelCosts {
  double forward = 1, backward = 1, disk_write = 0, disk_read = 0;
};
double two_level_makespan(std::int64_t n, std::int64_t ram, std::int64_t disk, const TwoLevelCosts& costs);

}  // namespace tidemark
