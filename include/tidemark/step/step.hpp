/// What exactly happens in a training step: one ordered list of instructions on storages.
///
/// The list is in *host issue order*. Streams give it device time; `simulate` runs it. Engine, allocators, referee and
/// composition see only Steps.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tidemark/base/names.hpp"
#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/program/program.hpp"

namespace tidemark {

using StorageId = std::uint32_t;
using OpId = std::uint32_t;
inline constexpr std::uint32_t no_id = std::numeric_limits<std::uint32_t>::max();

/// One lifetime: allocated once, freed at most once. A recomputed tensor is a new storage with the same name.
struct StepStorage {
  Bytes bytes;
  NameId name = 0;
  std::int32_t layer = -1;  // index into Step::layers
  Category category = Category::activation;
  bool outlives_step = false;  // parameters, optimizer state, gradients under zero_grad zero: no leak
  std::int16_t rank = 0;       // whose memory
  friend bool operator==(const StepStorage&, const StepStorage&) = default;
};

struct StepOp {
  NameId name = 0;
  std::int32_t layer = -1;
  Phase phase = Phase::forward;
  Stream stream = Stream::compute;
  DType dtype = DType::float32;  // which FLOP/s applies
  std::int16_t step = 0;
  std::int16_t rank = 0;
  std::int32_t micro_batch = 0;
  OpKind kind = OpKind::custom;  // whose measured cost applies; custom: none but the optimizer's
  bool is_backward = false;      // of that kind; the phase may be another: a backward that builds a forward again
  bool has_time = false;         // `time` is given; else the device's duration of flops and bytes
  Nanos time;
  std::int64_t flops = 0;        // matrix products, 2 m n k; one op's fit in 63 bits, totals are kept in 128
  std::int64_t other_flops = 0;  // elementwise and reductions
  Bytes moved;
  std::uint32_t read_begin = 0, read_end = 0;  // storages the kernel reads or writes: Step::reads
  friend bool operator==(const StepOp&, const StepOp&) = default;
};

enum class Do : std::uint8_t {
  alloc,    // index = storage
  compute,  // index = op: its kernel runs on its stream
  free,     // index = storage; on another stream than compute: when that stream has done all issued so far
  copy,     // index = op: like compute, duration from its bytes and the copy bandwidth
  record,   // index = event, on `stream`
  wait,     // index = event: `stream` goes on when it has been reached
};

struct Instruction {
  Do what = Do::compute;
  Stream stream = Stream::compute;
  OpId op = no_id;  // the op whose script this belongs to; consecutive instructions of an op stand together
  std::uint32_t index = 0;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

/// Pinned host memory: from when the copy `out` starts until the copy `back` has ended.
struct HostBlock {
  NameId name = 0;  // of the storage whose copy it is
  Bytes bytes;
  OpId out = no_id, back = no_id;  // ops; no_id: to the end
  friend bool operator==(const HostBlock&, const HostBlock&) = default;
};

struct Step {
  NameTable names;
  std::vector<std::string> layers;
  std::vector<StepStorage> storages;
  std::vector<StepOp> ops;
  std::vector<StorageId> reads;
  std::vector<StorageId> initial;  // live before the first instruction, in order
  std::vector<HostBlock> host;     // in the order of their copies out
  std::vector<Instruction> instructions;
  std::uint32_t events = 0;  // event ids are below this
  int steps = 1;
  int ranks = 1;                // each with its own host, streams and memory; events are shared
  std::vector<int> in_flight;   // of a pipeline, by rank: chunks' micro-batches it holds for backward at most
  std::int64_t parameters = 0;  // their number, 0 when the family does not know
  Flops model_flops;            // textbook, one step
  std::vector<std::string> warnings;
};

}  // namespace tidemark
