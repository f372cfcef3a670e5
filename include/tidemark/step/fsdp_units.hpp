/// Which parameters are gathered together, and how many bytes of them does one rank hold?
///
/// Units are those that Hugging Face's and torchtitan's recipes wrap: every block, trained adapters one by one
/// (peft's fsdp_auto_wrap_policy), and the root, which has the rest: embedding, last norm, head. FSDP1 lays a unit's
/// parameters into one flat tensor, each padded to 16 bytes (as computed in) and all to the ranks
/// (torch/distributed/fsdp/_flat_param.py); FSDP2 divides each parameter by rows, padded to the ranks
/// (_fully_shard/_fsdp_param.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"

namespace tidemark {

struct UnitParameter {
  TensorId tensor = -1;
  std::int64_t elements = 0;         // of the dtypes below; packed weights count in their storage's
  std::int64_t padded_elements = 0;  // FSDP1: to 16 bytes; FSDP2: to rows that divide
  DType stored = DType::float32;     // of the shards, and so of the optimizer's states
  DType computed = DType::float32;   // gathered and computed in
  friend bool operator==(const UnitParameter&, const UnitParameter&) = default;
};

struct Unit {
  enum class Scope : std::uint8_t { root, block, op } scope = Scope::root;  // whole for the step, a block, an op
  std::string name;                                                         // "root", "layers.3"
  std::int32_t layer = -1;
  std::vector<UnitParameter> parameters;
  std::int64_t padded_elements = 0;  // whole, with all padding: a multiple of the ranks
  bool trained = false;              // any of them
  friend bool operator==(const Unit&, const Unit&) = default;
};

/// In the order in which forward meets them, the root first. Throws InputError where FSDP1 would flatten parameters of
/// several types.
std::vector<Unit> fsdp_units(const Program& program, const Training& training);

/// How many of the parameter's own elements, padding aside, lie on a rank. Over the ranks they add up to all.
std::int64_t elements_on_rank(const Unit& unit, std::size_t parameter, Sharding sharding, int ranks, int rank);

}  // namespace tidemark
