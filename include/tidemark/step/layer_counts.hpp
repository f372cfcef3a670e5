/// How many bytes, FLOPs and nanoseconds does each thing in a layer graph count, under which convention?
///
/// Values are numbered as in the literature on chains: value 0 is the model's input, value v + 1 the output of layer v.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/program/layer_graph.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {

/// The wiring of a layer graph and the sizes a convention counts.
///
/// `framework` counts what is given. `rotor` (Beaumont et al. 2019) counts a gradient as large as its boundary, and no
/// parameters. In a graph that is not a chain a gradient is as large as the value it belongs to, unless the table
/// gives gradients; the model's input then gets one only when a layer that reads it gives one.
/// `checkmate` (Jain et al. 2020) and `dtr` (Kirisame et al. 2021) count graphs whose rows are the whole step: each row
/// makes one value of `output` bytes and nothing else, gone after its last reader. Under dtr rows that read nothing are
/// constants and rows that nobody reads are results: both stay to the end.
struct LayerCounts {
  std::vector<std::string> names;                  // by layer: its name, else its number
  std::vector<std::vector<std::int32_t>> inputs;   // by layer: values it reads, ascending, each once
  std::vector<std::vector<std::int32_t>> readers;  // by value: layers that read it, ascending
  std::vector<Bytes> plain;                        // by value: what is live when it is not part of saved activations
  std::vector<Bytes> gradient;                     // by value
  std::vector<Bytes> saved;                        // by layer: its own output included
  std::vector<Bytes> parameters;                   // by layer; their gradients are as large
  bool has_times = false;                          // some time is given, so all are taken as given

  std::int32_t layers() const { return static_cast<std::int32_t>(inputs.size()); }
  bool is_sink(std::int32_t value) const { return value > 0 && readers[static_cast<std::size_t>(value)].empty(); }
};

/// Throws InputError where an input does not come earlier in the list, or where `rotor` is asked to count a graph
/// that is not a chain, where a graph's rows are the whole step and the convention's are not or the other way round.
LayerCounts count_layers(const LayerGraph& graph, Convention convention);

/// A layer whose `attention_flops` are given has two ops, as in its Outline: 0 is attention, 1 the rest, which makes
/// and saves all its bytes. Any other layer is one op.
enum class LayerPart : std::uint8_t { whole, attention, rest };
LayerPart part_of(const LayerCost& layer, const std::vector<std::int32_t>& ops);
/// The forward FLOPs and time of a part; those of the two parts add up to the whole.
struct LayerWork {
  Flops flops;
  Nanos time;
  friend bool operator==(const LayerWork&, const LayerWork&) = default;
};
LayerWork forward_work(const LayerCost& layer, LayerPart part);

/// "Fe3" in a chain, "Fe node3" in a graph; "Fe3[0]" where only that part runs.
std::string layer_op_name(const LayerGraph& graph, std::string_view kind, std::int32_t layer,
                          LayerPart part = LayerPart::whole);
/// "layer 3" in a chain, "layer 'node3'" in a graph.
std::string layer_label(const LayerGraph& graph, std::int32_t layer);

}  // namespace tidemark
