/// The MLP chain h = relu(x w1 + b1) w2 + b2 with segment-wise recomputation, written as its NumPy program is.
///
///   def step(x, grad_output, params):                    # between steps the caller does: del g, grads
///       out, saved = model_forward_checkpointed(x, params, k)        # k = 0: model_forward(x, params)
///       del out                                                      # unless held
///       return model_backward_checkpointed(grad_output, saved, params, k)
///
/// Every function below is one of that program's, with its variables; a variable lets go when it is given another
/// value or its function returns, in the order of first use, and a list lets its items go from the last to the first.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor.hpp"

namespace tidemark::native {

struct MlpShape {
  std::int64_t layers = 4, rows = 256, width = 32, hidden = 64;
  bool save_pre_activation = false;  // backward reads it instead of building it again
};

/// What does a tensor start with? Fixed values between -scale / 2 and scale / 2, others for each `seed`.
void fill(const Tensor& tensor, std::int64_t seed, double scale);

class Mlp {
 public:
  struct Parameters {
    Tensor w1, b1, w2, b2;
  };
  struct Gradients {
    Tensor w1, b1, w2, b2;
  };

  /// Allocates parameters, x and grad_output and fills them.
  Mlp(Machine& machine, const MlpShape& shape);
  /// One training step; `segment` layers are recomputed together, 0: nothing is.
  void step(int number, std::int64_t segment, bool hold_out);

  const std::vector<Parameters>& parameters() const { return parameters_; }
  const Tensor& x() const { return x_; }
  const Tensor& grad_output() const { return grad_output_; }
  /// Of the last step.
  const std::vector<Gradients>& gradients() const { return gradients_; }
  const Tensor& x_gradient() const { return g_; }
  /// The chain's result alone: nothing of it is recorded or kept. For finite differences.
  std::vector<float> evaluate();

 private:
  /// Lists whose memory is there before a step begins.
  struct Activations {
    std::vector<Tensor> boundaries, pre_activations;
  };

  Tensor call(std::int64_t layer, const char* op, const char* result, Phase phase, Dims shape,
              std::initializer_list<const Tensor*> reads, std::int64_t item_bytes = sizeof(float));
  Tensor product(std::int64_t layer, const char* op, const char* result, Phase phase, const Tensor& a,
                 bool a_transposed, const Tensor& b, bool b_transposed);
  Tensor linear_forward(std::int64_t layer, const char* which, Phase phase, const Tensor& x, const Tensor& w,
                        const Tensor& b);
  Tensor relu(std::int64_t layer, Phase phase, const Tensor& x);
  Tensor sum_rows(std::int64_t layer, const char* op, const char* result, const Tensor& of);
  Tensor layer_forward(std::int64_t layer, Phase phase, const Tensor& x, std::vector<Tensor>* pre_activations);
  void model_forward(Phase phase, const Tensor& x, std::int64_t begin, std::int64_t end, Activations& activations);
  Tensor model_backward(const Tensor& grad_output, const Activations& kept, std::int64_t begin, std::int64_t end);
  Tensor model_forward_checkpointed(std::int64_t segment);
  Tensor model_backward_checkpointed(std::int64_t segment);
  void delete_results();

  Machine& machine_;
  MlpShape shape_;
  std::vector<std::string_view> names_;  // by layer
  std::vector<Parameters> parameters_;
  Tensor x_, grad_output_, g_;
  std::vector<Gradients> gradients_;  // by layer
  Activations activations_, rebuilt_;
  std::vector<Tensor> saved_inputs_;
};

}  // namespace tidemark::native
