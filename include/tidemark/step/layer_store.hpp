/// What of each value of a layer graph is there, who holds it, and which op let it go?
///
/// Value v + 1 is the output of layer v. It lives on its own (*plain*), as part of what layer v saved, or both; a
/// reader takes the plain one when there are both. All three kinds of storage of one value stand in one place here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/layer_counts.hpp"
#include "tidemark/step/layer_lookahead.hpp"

namespace tidemark {

class LayerStore {
 public:
  LayerStore(const LayerGraph& graph, const LayerCounts& counts, Emitter& emit, bool hold_boundaries);

  /// Writes the first op of a later step's beginning: the leaves' gradients go (zero_grad), a new batch comes.
  void start_step(bool first);
  /// Frees what the plan left behind and the boundaries that were held; the leaves' gradients stay.
  void finish_step();
  /// The leaves' gradients of the last step are there when it has ended.
  void finish();

  /// Names who lets go of what goes from here on, for messages.
  void acting(NameId op) { acting_ = op; }

  bool has_plain(std::int32_t v) const { return at(v).plain != no_id; }
  bool has_saved(std::int32_t layer) const { return at(layer + 1).saved != no_id; }

  /// The storage a reader of the value takes. Throws InputError when there is none: `reader` "needs the input of
  /// layer 3, dropped by Fn3".
  StorageId read(std::int32_t v, std::string_view reader) const;
  StorageId read_saved(std::int32_t layer, std::string_view reader) const;
  StorageId gradient(std::int32_t v) const { return at(v).gradient; }
  StorageId parameters(std::int32_t layer) const { return parameters_[static_cast<std::size_t>(layer)]; }

  /// Allocates the value on its own, for these holders. A value already there is the plan's mistake.
  StorageId make_plain(std::int32_t v, std::vector<std::int32_t> holders, std::string_view maker);
  /// Allocates the layer's saved activations, its output among them.
  StorageId make_saved(std::int32_t layer, std::string_view maker);
  /// The gradient of a value: made by the first who adds to it.
  StorageId add_to_gradient(std::int32_t v);
  StorageId make_parameter_gradient(std::int32_t layer);

  /// One holder lets the plain value go; the last one frees it. A boundary used in backward may have to wait.
  void let_go(std::int32_t holder, std::int32_t v, bool in_backward);
  void free_unheld(std::int32_t v);
  void free_saved(std::int32_t layer);
  void free_gradient(std::int32_t v);

  /// Nobody but this layer will read the plain value.
  bool is_only_for(std::int32_t layer, std::int32_t v) const {
    return has_plain(v) && at(v).holders == std::vector<std::int32_t>{layer};
  }
  /// Out of the store with its hold: what the layer saved, or the plain value; and back into it.
  StorageId take_saved(std::int32_t layer);
  StorageId take_plain(std::int32_t v);
  void put_saved(std::int32_t layer, StorageId id) { at(layer + 1).saved = id; }
  void put_plain(std::int32_t v, StorageId id, std::int32_t holder) {
    at(v).plain = id;
    at(v).holders = {holder};
  }

  std::string value_label(std::int32_t v) const;

 private:
  struct Value {
    StorageId plain = no_id;
    std::vector<std::int32_t> holders;  // readers that have not let go of `plain`; layers() stands for the loss
    StorageId saved = no_id;            // by the layer whose output this is
    StorageId gradient = no_id;
    bool has_gradient = false;  // was made in this step
    NameId plain_lost_by = 0;   // the op after which it was gone, or that did not keep it: for messages
    NameId saved_lost_by = 0;
  };
  Value& at(std::int32_t v) { return values_[static_cast<std::size_t>(v)]; }
  const Value& at(std::int32_t v) const { return values_[static_cast<std::size_t>(v)]; }
  std::string name(std::string_view what, std::int32_t v) const;
  [[noreturn]] void refuse(std::string_view reader, const std::string& what, NameId lost_by) const;

  const LayerGraph& graph_;
  const LayerCounts& counts_;
  Emitter& emit_;
  bool hold_boundaries_;
  NameId acting_ = 0;
  std::vector<Value> values_;
  std::vector<StorageId> parameters_;       // by layer
  std::vector<StorageId> leaf_gradients_;   // of parameters and the model's input: until the next step zeroes them
  std::vector<StorageId> used_boundaries_;  // held until the step ends
};

}  // namespace tidemark
