#include "tidemark/program/program.hpp"

#include <algorithm>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {

std::optional<std::int64_t> element_count(const Shape& shape) {
  std::optional<std::int64_t> count = 1;
  for (const std::int64_t extent : shape)
    if (count) count = checked_product(*count, extent);
  return count;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

std::int64_t parameter_count(const Program& program) {
  std::int64_t count = 0;
  std::vector<std::int32_t> seen;
  for (const TensorId id : program.parameters) {
    const Tensor& tensor = program.tensors[static_cast<std::size_t>(id)];
    if (std::ranges::find(seen, tensor.storage) != seen.end()) continue;
    seen.push_back(tensor.storage);
    count += *element_count(tensor.shape);
  }
  return count;
}

std::int32_t ProgramBuilder::begin_layer(std::string name, std::string type, bool is_block) {
  program_.layers.push_back({std::move(name), std::move(type), is_block});
  return static_cast<std::int32_t>(program_.layers.size()) - 1;
}

namespace {

Bytes tensor_bytes(const std::string& name, const Shape& shape, DType dtype) {
  std::optional<std::int64_t> bytes = element_count(shape);
  if (bytes) bytes = checked_product(*bytes, bytes_per_element(dtype));
  if (!bytes) throw InputError("the size of '" + name + "' passes 2^63 bytes");
  return Bytes{*bytes};
}

}  // namespace

std::int32_t ProgramBuilder::new_storage(const std::string& name, const Shape& shape, DType dtype) {
  program_.storages.push_back({tensor_bytes(name, shape, dtype)});
  return static_cast<std::int32_t>(program_.storages.size()) - 1;
}

TensorId ProgramBuilder::new_tensor(std::string name, Shape shape, Shape strides, DType dtype, std::int32_t storage,
                                    bool requires_grad, Category category) {
  const auto layer = static_cast<std::int32_t>(program_.layers.size()) - 1;
  program_.tensors.push_back(
      {std::move(name), std::move(shape), std::move(strides), dtype, storage, requires_grad, category, layer});
  return static_cast<TensorId>(program_.tensors.size()) - 1;
}

TensorId ProgramBuilder::parameter(std::string name, Shape shape, DType dtype, bool requires_grad) {
  const std::int32_t storage = new_storage(name, shape, dtype);
  Shape strides = contiguous_strides(shape);
  program_.parameters.push_back(new_tensor(std::move(name), std::move(shape), std::move(strides), dtype, storage,
                                           requires_grad, Category::parameter));
  return program_.parameters.back();
}

TensorId ProgramBuilder::packed_parameter(std::string name, Shape shape, DType dtype, Bytes bytes) {
  const TensorId out = parameter(std::move(name), std::move(shape), dtype, false);
  program_.storages[static_cast<std::size_t>(tensor(out).storage)].bytes = bytes;
  return out;
}

TensorId ProgramBuilder::buffer(std::string name, Shape shape, DType dtype) {
  const TensorId out = input(std::move(name), std::move(shape), dtype);
  program_.tensors[static_cast<std::size_t>(out)].category = Category::parameter;
  return out;
}

TensorId ProgramBuilder::workspace(std::string name, Shape shape, DType dtype) {
  const TensorId out = input(std::move(name), std::move(shape), dtype);
  program_.tensors[static_cast<std::size_t>(out)].category = Category::workspace;
  return out;
}

TensorId ProgramBuilder::input(std::string name, Shape shape, DType dtype, bool requires_grad) {
  const std::int32_t storage = new_storage(name, shape, dtype);
  Shape strides = contiguous_strides(shape);
  program_.inputs.push_back(new_tensor(std::move(name), std::move(shape), std::move(strides), dtype, storage,
                                       requires_grad, Category::input));
  return program_.inputs.back();
}

TensorId ProgramBuilder::batch_input(std::string name, Shape shape, DType dtype) {
  const TensorId out = op(OpKind::custom, std::move(name), {}, std::move(shape), dtype);
  program_.tensors[static_cast<std::size_t>(out)].category = Category::input;
  return out;
}

void ProgramBuilder::push_op(OpKind kind, std::string name, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                             Attributes attributes) {
  const auto layer = static_cast<std::int32_t>(program_.layers.size()) - 1;
  program_.ops.push_back(
      {kind, std::move(name), layer, std::move(inputs), std::move(outputs), std::move(attributes), {}});
}

TensorId ProgramBuilder::op(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape, DType dtype,
                            Attributes attributes) {
  tensor_bytes(name, shape, dtype);  // before strides are multiplied out
  Shape strides = contiguous_strides(shape);
  return op_strided(kind, std::move(name), std::move(inputs), std::move(shape), std::move(strides), dtype,
                    std::move(attributes));
}

TensorId ProgramBuilder::op_strided(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape,
                                    Shape strides, DType dtype, Attributes attributes) {
  const std::int32_t storage = attributes.in_place ? tensor(inputs.at(0)).storage : new_storage(name, shape, dtype);
  const bool requires_grad = std::ranges::any_of(inputs, [&](TensorId id) { return tensor(id).requires_grad; });
  const TensorId out =
      new_tensor(name, std::move(shape), std::move(strides), dtype, storage, requires_grad, Category::activation);
  push_op(kind, std::move(name), std::move(inputs), {out}, std::move(attributes));
  return out;
}

std::vector<TensorId> ProgramBuilder::op_of_many(OpKind kind, std::string name, std::vector<TensorId> inputs,
                                                 const std::vector<Made>& outputs, Attributes attributes) {
  const bool requires_grad = std::ranges::any_of(inputs, [&](TensorId id) { return tensor(id).requires_grad; });
  std::vector<TensorId> ids;
  for (const Made& made : outputs) {
    const std::int32_t storage = new_storage(made.name, made.shape, made.dtype);
    ids.push_back(new_tensor(made.name, made.shape, made.strides, made.dtype, storage,
                             requires_grad && made.differentiable, Category::activation));
  }
  push_op(kind, std::move(name), std::move(inputs), ids, std::move(attributes));
  return ids;
}

TensorId ProgramBuilder::alias(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape, Shape strides,
                               Attributes attributes) {
  const Tensor base = tensor(inputs.at(0));
  const TensorId out = new_tensor(name, std::move(shape), std::move(strides), base.dtype, base.storage,
                                  base.requires_grad, base.category);
  push_op(kind, std::move(name), std::move(inputs), {out}, std::move(attributes));
  return out;
}

std::vector<TensorId> ProgramBuilder::split(std::string name, TensorId input, const std::vector<Part>& parts) {
  const Tensor base = tensor(input);
  std::vector<TensorId> outs;
  for (const Part& part : parts)
    outs.push_back(
        new_tensor(part.name, part.shape, part.strides, base.dtype, base.storage, base.requires_grad, base.category));
  push_op(OpKind::split, std::move(name), {input}, outs, {});
  return outs;
}

void ProgramBuilder::make_leaf(TensorId id) {
  program_.tensors[static_cast<std::size_t>(id)].requires_grad = true;
  leaves_.push_back(id);
}

void ProgramBuilder::hold_until_now(TensorId id) {
  std::erase_if(held_, [&](const Held& held) { return held.tensor == id; });
  held_.push_back({id, static_cast<OpIndex>(program_.ops.size()) - 1});
}

Program ProgramBuilder::finish(TensorId loss) {
  program_.loss = loss;
  std::vector<OpIndex> last(program_.tensors.size(), -1);
  for (std::size_t k = 0; k < program_.ops.size(); ++k) {
    for (const TensorId id : program_.ops[k].outputs) last[static_cast<std::size_t>(id)] = static_cast<OpIndex>(k);
    for (const TensorId id : program_.ops[k].inputs) last[static_cast<std::size_t>(id)] = static_cast<OpIndex>(k);
  }
  // Expression temporaries first, then names in the order they were let go.
  std::vector<bool> named(program_.tensors.size(), false);
  for (const Held& held : held_) named[static_cast<std::size_t>(held.tensor)] = true;
  for (const TensorId leaf : leaves_) named[static_cast<std::size_t>(leaf)] = true;
  // What lives from the start has no variable of this program, nor has a view of it.
  std::vector<bool> lives_anyway(program_.storages.size(), false);
  for (const std::vector<TensorId>& leaves : {program_.parameters, program_.inputs})
    for (const TensorId id : leaves) lives_anyway[static_cast<std::size_t>(tensor(id).storage)] = true;
  const auto release = [&](TensorId t, OpIndex k) {
    const bool stays = lives_anyway[static_cast<std::size_t>(tensor(t).storage)] || t == loss;
    if (!stays && k >= 0) program_.ops[static_cast<std::size_t>(k)].releases.push_back(t);
  };
  for (TensorId t = 0; t < static_cast<TensorId>(last.size()); ++t)
    if (!named[static_cast<std::size_t>(t)]) release(t, last[static_cast<std::size_t>(t)]);
  for (const Held& held : held_)
    release(held.tensor, std::max(held.until, last[static_cast<std::size_t>(held.tensor)]));
  return std::move(program_);
}

}  // namespace tidemark
