#include "tidemark/step/layer_store.hpp"

#include <utility>

namespace tidemark {

LayerStore::LayerStore(const LayerGraph& graph, const LayerCounts& counts, Emitter& emit, bool hold_boundaries)
    : graph_(graph), counts_(counts), emit_(emit), hold_boundaries_(hold_boundaries), values_(counts.plain.size()) {
  for (std::int32_t layer = 0; layer < counts_.layers(); ++layer) {
    const Bytes bytes = counts_.parameters[static_cast<std::size_t>(layer)];
    parameters_.push_back(emit_.initial(name("parameters", layer + 1), bytes, Category::parameter, layer));
    emit_.step().storages[parameters_.back()].outlives_step = true;
  }
}

/// "boundary3", "saved3", "gradient3" in a chain: numbered by the layer that takes, saves, hands on. "node3.output" in
/// a graph.
std::string LayerStore::name(std::string_view what, std::int32_t v) const {
  const bool by_layer = what == "saved" || what == "parameters" || what == "parameter_gradient";
  if (graph_.is_chain)
    return (what == "output" ? "boundary" : std::string(what)) + std::to_string(graph_.first + (by_layer ? v - 1 : v));
  if (v == 0) return what == "output" ? "input" : "input." + std::string(what);
  return counts_.names[static_cast<std::size_t>(v - 1)] + "." + std::string(what);
}

std::string LayerStore::value_label(std::int32_t v) const {
  if (graph_.is_chain && v < counts_.layers()) return "the input of layer " + std::to_string(v);
  return v == 0 ? "the model's input" : "the output of " + layer_label(graph_, v - 1);
}

void LayerStore::start_step(bool first) {
  for (const StorageId id : leaf_gradients_) emit_.release(id);
  leaf_gradients_.clear();
  const Bytes bytes = counts_.plain[0];
  at(0).plain = first ? emit_.initial(name("output", 0), bytes, Category::input, 0)
                      : emit_.alloc(name("output", 0), bytes, Category::input, 0);
  at(0).holders = counts_.readers[0];
}

void LayerStore::finish_step() {
  for (const StorageId id : used_boundaries_) emit_.release(id);
  used_boundaries_.clear();
  for (const Value& value : values_) {
    if (value.plain != no_id) emit_.release(value.plain);
    if (value.saved != no_id) emit_.release(value.saved);
  }
  if (at(0).gradient != no_id) leaf_gradients_.push_back(at(0).gradient);
  values_.assign(values_.size(), {});
}

void LayerStore::finish() {
  for (const StorageId id : leaf_gradients_) emit_.step().storages[id].outlives_step = true;
}

void LayerStore::refuse(std::string_view reader, const std::string& what, NameId lost_by) const {
  const std::string& by = emit_.step().names[lost_by];
  throw InputError(std::string(reader) + " needs " + what +
                   (by.empty() ? ", which nothing has made" : ", dropped by " + by));
}

StorageId LayerStore::read(std::int32_t v, std::string_view reader) const {
  const Value& value = at(v);
  if (value.plain != no_id) return value.plain;
  if (value.saved == no_id) refuse(reader, value_label(v), value.plain_lost_by);
  return value.saved;
}

StorageId LayerStore::read_saved(std::int32_t layer, std::string_view reader) const {
  const Value& value = at(layer + 1);
  if (value.saved == no_id)
    refuse(reader, "the saved activations of " + layer_label(graph_, layer), value.saved_lost_by);
  return value.saved;
}

StorageId LayerStore::make_plain(std::int32_t v, std::vector<std::int32_t> holders, std::string_view maker) {
  Value& value = at(v);
  if (value.plain != no_id)
    throw InputError(std::string(maker) + " makes " + value_label(v) + ", which is still there");
  const Bytes bytes = counts_.plain[static_cast<std::size_t>(v)];
  value.plain = v == 0 ? emit_.alloc(name("output", 0), bytes, Category::input, 0)
                       : emit_.alloc(name("output", v), bytes, Category::activation, v - 1);
  value.holders = std::move(holders);
  if (value.saved == no_id) value.saved_lost_by = acting_;
  return value.plain;
}

StorageId LayerStore::make_saved(std::int32_t layer, std::string_view maker) {
  Value& value = at(layer + 1);
  if (value.saved != no_id)
    throw InputError(std::string(maker) + " makes the saved activations of " + layer_label(graph_, layer) +
                     ", which are still there");
  const Bytes bytes = counts_.saved[static_cast<std::size_t>(layer)];
  return value.saved = emit_.alloc(name("saved", layer + 1), bytes, Category::activation, layer);
}

StorageId LayerStore::add_to_gradient(std::int32_t v) {
  Value& value = at(v);
  if (!value.has_gradient)
    value.gradient = emit_.alloc(name("gradient", v), counts_.gradient[static_cast<std::size_t>(v)],
                                 Category::autograd_detail, v > 0 ? v - 1 : 0);
  value.has_gradient = true;
  return value.gradient;
}

StorageId LayerStore::make_parameter_gradient(std::int32_t layer) {
  leaf_gradients_.push_back(emit_.alloc(name("parameter_gradient", layer + 1),
                                        counts_.parameters[static_cast<std::size_t>(layer)], Category::gradient,
                                        layer));
  return leaf_gradients_.back();
}

void LayerStore::let_go(std::int32_t holder, std::int32_t v, bool in_backward) {
  Value& value = at(v);
  if (value.plain == no_id) return;
  std::erase(value.holders, holder);
  if (!value.holders.empty()) return;
  if (in_backward && hold_boundaries_) {
    used_boundaries_.push_back(std::exchange(value.plain, no_id));
    value.plain_lost_by = acting_;
  } else {
    free_unheld(v);
  }
}

void LayerStore::free_unheld(std::int32_t v) {
  Value& value = at(v);
  if (value.plain == no_id || !value.holders.empty()) return;
  emit_.release(std::exchange(value.plain, no_id));
  value.plain_lost_by = acting_;
}

void LayerStore::free_saved(std::int32_t layer) { emit_.release(take_saved(layer)); }

StorageId LayerStore::take_saved(std::int32_t layer) {
  Value& value = at(layer + 1);
  value.saved_lost_by = acting_;
  if (value.plain == no_id) value.plain_lost_by = acting_;
  return std::exchange(value.saved, no_id);
}

StorageId LayerStore::take_plain(std::int32_t v) {
  at(v).plain_lost_by = acting_;
  at(v).holders.clear();
  return std::exchange(at(v).plain, no_id);
}

void LayerStore::free_gradient(std::int32_t v) { emit_.release(std::exchange(at(v).gradient, no_id)); }

}  // namespace tidemark
