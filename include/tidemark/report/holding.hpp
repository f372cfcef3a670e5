/// Why is a tensor alive, in a reader's words?
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/peak.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// What runs, for a reader: "backward of layers.3.mlp.gelu"; "backward of layer 3 (B3)" where the op's name does not
/// begin with its layer's.
std::string phase_of_work(Phase phase, const std::string& op, const std::string& layer);

/// The kinds of reason; some speak of an op.
enum class Hold : std::uint8_t {
  parameter,
  optimizer_state,
  gradient_until_optimizer,
  saved,
  passed,
  recompute_input,
  optimizer_reads,
  next_reader,
  running_reader,
  input,
  gradient_kept,
  until_op,
  to_the_end,
};
/// What of the op ends the sentence: the op by name, or its layer where the name alone says little; its layer, or the
/// op where there is none; the phase and the op.
enum class HoldSubject : std::uint8_t { none, work, layer, phase_of_work };
struct HoldWords {
  std::string_view text;
  HoldSubject subject = HoldSubject::none;
};
inline constexpr std::array<HoldWords, 13> hold_words = {{
    {"parameter"},
    {"optimizer state"},
    {"gradient until the optimizer"},
    {"saved for backward of ", HoldSubject::work},
    {"passed to backward of ", HoldSubject::work},
    {"input of the recompute of ", HoldSubject::layer},
    {"read by the optimizer"},
    {"read next by ", HoldSubject::work},
    {"read by the running op"},
    {"input of the step"},
    {"gradient, kept to the end of the step"},
    {"held until ", HoldSubject::phase_of_work},
    {"held to the end"},
}};

struct HoldReason {
  Hold hold = Hold::to_the_end;
  OpId op = no_id;  // whom the sentence ends with; none where it names nobody
  friend bool operator==(const HoldReason&, const HoldReason&) = default;
};

/// While op `now` runs: what `storage` says of the peak is said of that moment.
HoldReason hold_reason(const Step& step, const Timeline& timeline, const PeakStorage& storage, OpId now);
/// "saved for backward of layers.3.mlp.gelu".
std::string to_text(const Step& step, const HoldReason& reason);
/// The reason at the peak, as a text.
std::string held_by(const Step& step, const Timeline& timeline, const PeakStorage& storage);

}  // namespace tidemark
