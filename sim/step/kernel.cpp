#include "tidemark/step/kernel.hpp"

namespace tidemark {
namespace {

const Tensor& at(const Program& program, TensorId id) { return program.tensors[static_cast<std::size_t>(id)]; }

}  // namespace

const Tensor& OpView::input(std::size_t i) const { return at(program, op.inputs.at(i)); }
const Tensor& OpView::output(std::size_t i) const { return at(program, op.outputs.at(i)); }

}  // namespace tidemark
