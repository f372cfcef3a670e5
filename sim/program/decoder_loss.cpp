#include <algorithm>
#include <string>
#include <vector>

#include "decoder.hpp"

namespace tidemark {
namespace {

/// The loss of some rows of logits, as the model code chains it.
class LossChain {
 public:
  LossChain(Decoder& d, std::string suffix) : d_(d), suffix_(std::move(suffix)) {}

  TensorId loss(TensorId logits, TensorId labels) {
    switch (d_.code) {
      case ModelCode::huggingface:
        return huggingface(logits, labels);
      case ModelCode::megatron:
        return megatron(logits, labels);
      case ModelCode::torchtitan:
        return log_softmax_and_nll(widened(logits), labels);
      case ModelCode::reference:
        break;
    }
    return d_.program.op(OpKind::cross_entropy, name("cross_entropy"), {as_asked(logits), labels}, {}, DType::float32);
  }

 private:
  std::string part(const char* op) const { return op + suffix_; }
  std::string name(const char* op) const { return d_.name(part(op)); }

  /// `dtype.logits`, or as they come.
  TensorId as_asked(TensorId logits) {
    return d_.cast(part("cast"), logits, d_.training.dtypes.logits.value_or(d_.tensor(logits).dtype));
  }
  /// fp32 unless `dtype.logits` says otherwise.
  TensorId widened(TensorId logits) {
    return d_.cast(part("float"), logits, d_.training.dtypes.logits.value_or(DType::float32));
  }

  TensorId log_softmax_and_nll(TensorId logits, TensorId labels) {
    const std::int64_t vocab = d_.tensor(logits).shape.back();
    const std::int64_t rows = d_.batch * d_.tensor(logits).shape.at(1);
    const bool flat = d_.tensor(logits).shape.size() == 2;
    const TensorId flattened = flat ? logits : d_.reshape(part("flatten"), logits, {rows, vocab});
    const TensorId log_probabilities = d_.pointwise(OpKind::log_softmax, part("log_softmax"), {flattened});
    const DType dtype = d_.tensor(log_probabilities).dtype;
    return d_.program.op(OpKind::nll_loss, name("nll_loss"), {log_probabilities, labels}, {}, dtype);
  }

  /// transformers up to 4.44: logits.float(), then row t against label t + 1 by a copy of all rows but the last; with
  /// one sequence that slice is row-major already and nothing is copied.
  TensorId huggingface(TensorId logits, TensorId labels) {
    const TensorId wide = widened(logits);
    d_.program.program().logits = wide;
    if (d_.tensor(wide).shape.size() == 2) return log_softmax_and_nll(wide, labels);  // chunks: labels are shifted
    const TensorId shifted = d_.slice(part("shift"), wide, 1, d_.sequence - 1);
    const TensorId copied = d_.contiguous(part("shift_copy"), shifted);
    const TensorId targets =
        d_.contiguous(part("shift_labels"), d_.slice(part("labels_shift"), labels, 1, d_.sequence - 1));
    const TensorId loss = log_softmax_and_nll(copied, targets);
    d_.ends_scope(copied);
    d_.ends_scope(wide);
    return loss;
  }

  /// vocab_parallel_cross_entropy (megatron/core/tensor_parallel/cross_entropy.py) on fp32 logits, one loss a token,
  /// averaged under the loss mask (pretrain_gpt.py, loss_func).
  TensorId megatron(TensorId logits, TensorId labels) {
    const TensorId loss_mask = d_.program.input("loss_mask", {d_.sequence, d_.batch}, DType::float32);
    const Shape tokens(d_.tensor(logits).shape.begin(), d_.tensor(logits).shape.end() - 1);
    const TensorId wide = d_.cast(part("float"), logits, DType::float32);
    const TensorId losses =
        d_.program.op(OpKind::cross_entropy, name("cross_entropy"), {wide, labels}, tokens, DType::float32);
    const TensorId masked = d_.pointwise(OpKind::mul, part("mask"), {losses, loss_mask});
    d_.ends_scope(logits);
    return d_.program.op(OpKind::sum, name("sum"), {masked}, {}, DType::float32);
  }

  Decoder& d_;
  std::string suffix_;
};

TensorId head_weight(Decoder& d, TensorId token_table) {
  return d.spec.tied_embeddings ? token_table : d.weight("lm_head.weight", {d.spec.vocab, d.spec.hidden});
}

/// torch.chunk of the token rows: ceil(rows / chunks) each, the last takes what is left.
std::vector<TensorId> chunk_rows(Decoder& d, TensorId hidden, std::int64_t chunks) {
  const std::int64_t rows = d.batch * d.sequence;
  const std::int64_t size = (rows + chunks - 1) / chunks;
  const TensorId flat = d.reshape("head.rows", hidden, {rows, d.spec.hidden});
  std::vector<ProgramBuilder::Part> parts;
  for (std::int64_t begin = 0; begin < rows; begin += size)
    parts.push_back({d.name("chunk_" + std::to_string(parts.size())),
                     {std::min(size, rows - begin), d.spec.hidden},
                     {d.spec.hidden, 1}});
  return d.program.split(d.name("chunk"), flat, parts);
}

/// The head and the loss of one chunk of rows after the other; the losses are added.
TensorId chunked_loss(Decoder& d, TensorId hidden, TensorId weight) {
  TensorId total = no_tensor;
  const std::vector<TensorId> chunks = chunk_rows(d, hidden, d.training.loss.chunks);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const std::string suffix = "_" + std::to_string(i);
    const std::int64_t rows = d.tensor(chunks[i]).shape.front();
    const TensorId labels = d.program.input("labels" + suffix, {rows}, DType::int64);
    const TensorId logits = d.project("lm_head" + suffix, chunks[i], weight, no_tensor, d.spec.vocab);
    const TensorId loss = LossChain(d, suffix).loss(logits, labels);
    total = total == no_tensor ? loss : d.pointwise(OpKind::add, "total" + suffix, {total, loss});
  }
  return total;
}

}  // namespace

TensorId language_loss(Decoder& d, TensorId hidden, TensorId token_table) {
  const bool whole = d.training.loss.chunks == 1 && !d.training.loss.fused;
  if (d.spec.head == "none") {
    d.begin_layer("loss", "other", false);
    return d.program.op(OpKind::sum, "loss.sum", {hidden}, {}, d.tensor(hidden).dtype);
  }
  const TensorId weight = head_weight(d, token_table);
  const Shape tokens = {d.batch, d.sequence};
  if (whole) {
    const TensorId logits = d.project("lm_head", hidden, weight, no_tensor, d.spec.vocab);
    d.program.program().logits = logits;
    d.begin_layer("loss", "other", false);
    const TensorId labels = d.program.input("labels", tokens, DType::int64);
    const TensorId loss = LossChain(d, "").loss(logits, labels);
    d.ends_scope(hidden);
    return loss;
  }
  d.begin_layer("loss", "other", false);
  if (!d.training.loss.fused) return chunked_loss(d, hidden, weight);
  const TensorId labels = d.program.input("labels", tokens, DType::int64);
  return d.program.op(OpKind::linear_cross_entropy, "loss.linear_cross_entropy", {hidden, weight, labels}, {},
                      DType::float32);
}

}  // namespace tidemark
