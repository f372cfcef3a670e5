#include <algorithm>
#include <string>
#include <vector>

#include "decoder.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

void model_returns(Decoder& d, const std::vector<TensorId>& locals) {
  for (const TensorId local : locals)
    if (d.is(ModelCode::megatron)) d.ends_scope(local);
}

/// The loss of some rows of logits, as the model code chains it.
class LossChain {
 public:
  LossChain(Decoder& d, std::string suffix, const std::vector<TensorId>& locals)
      : d_(d), suffix_(std::move(suffix)), locals_(locals) {}

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

  TensorId fused_loss(TensorId logits, TensorId labels) {
    Attributes attributes;
    attributes.implementation = "fused";
    return d_.program.op(OpKind::cross_entropy, name("cross_entropy"), {logits, labels}, {}, DType::float32,
                         std::move(attributes));
  }

  TensorId log_softmax_and_nll(TensorId logits, TensorId labels) {
    const std::int64_t vocab = d_.tensor(logits).shape.back();
    const std::int64_t rows = d_.batch * d_.tensor(logits).shape.at(1);
    const bool flat = d_.tensor(logits).shape.size() == 2;
    const TensorId flattened = flat ? logits : d_.reshape(part("flatten"), logits, {rows, vocab});
    if (d_.fuses("loss")) return fused_loss(flattened, labels);
    const TensorId log_probabilities = d_.pointwise(OpKind::log_softmax, part("log_softmax"), {flattened});
    const DType dtype = d_.tensor(log_probabilities).dtype;
    return d_.program.op(OpKind::nll_loss, name("nll_loss"), {log_probabilities, labels}, {}, dtype);
  }

  /// logits.float(), then row t against label t + 1: by a copy of all rows but the last (with one sequence that slice
  /// is row-major already and nothing is copied), from transformers 4.49 on by labels that are padded and shifted. Up
  /// to 4.45 the model's forward binds its name `logits` to the fp32 copy; from 4.46 on that is a function's local
  /// (loss/loss_utils.py, ForCausalLMLoss), and the model's stays with the half-precision logits.
  TensorId huggingface(TensorId logits, TensorId labels) {
    const std::string& version = d_.training.transformers;
    // GPT2LMHeadModel and GPTBigCodeForCausalLM take the logits as they are, as LlamaForCausalLM did up to 4.29;
    // cross_entropy is fp32 under autocast.
    const bool as_they_are =
        d_.is_early_llama() || (!d_.habits.logits_widen && (version != "4.49" || !d_.habits.shifts_labels));
    const TensorId wide = as_they_are ? as_asked(logits) : widened(logits);
    const TensorId named = version == "4.29" || version == "4.45" ? wide : logits;
    std::ranges::replace(d_.program.program().logits, logits, named);
    const bool given = d_.tensor(wide).shape.size() == 2 || !d_.habits.shifts_labels;
    const TensorId loss = given               ? log_softmax_and_nll(wide, labels)  // chunks: labels are shifted
                          : version == "4.49" ? labels_shifted(wide, labels)
                                              : logits_shifted(wide, labels);
    d_.ends_scope(wide);
    if (named != wide) d_.ends_scope(named);
    return loss;
  }

  TensorId labels_shifted(TensorId wide, TensorId labels) {
    const TensorId padded =
        d_.program.op(OpKind::cat, name("labels_padded"), {labels}, {d_.batch, d_.sequence + 1}, DType::int64);
    Shape strides = d_.tensor(padded).strides;
    const TensorId shifted =
        d_.program.alias(OpKind::view, name("labels_shift"), {padded}, {d_.batch, d_.sequence}, std::move(strides));
    const TensorId targets = d_.contiguous(part("shift_labels"), shifted);
    const TensorId loss = log_softmax_and_nll(wide, targets);
    d_.ends_scope(targets);
    d_.ends_scope(padded);
    return loss;
  }

  TensorId logits_shifted(TensorId wide, TensorId labels) {
    const TensorId shifted = d_.slice(part("shift"), wide, 1, d_.sequence - 1);
    const TensorId copied = d_.contiguous(part("shift_copy"), shifted);
    const TensorId scores = d_.training.dtypes.autocast ? d_.cast(part("autocast"), copied, DType::float32) : copied;
    const TensorId targets =
        d_.contiguous(part("shift_labels"), d_.slice(part("labels_shift"), labels, 1, d_.sequence - 1));
    const TensorId loss = log_softmax_and_nll(scores, targets);
    d_.ends_scope(copied);
    return loss;
  }

  /// LanguageModule.compute_language_model_loss (megatron/core): labels turned to the logits' [sequence, batch],
  /// vocab_parallel_cross_entropy on fp32 logits, one loss a token, turned back; then the model returns, and the sum
  /// is taken under the loss mask (pretrain_gpt.py, loss_func).
  TensorId megatron(TensorId logits, TensorId labels) {
    const Shape tokens(d_.tensor(logits).shape.begin(), d_.tensor(logits).shape.end() - 1);
    const bool turned = tokens.size() == 2;
    const TensorId loss_mask = turned ? d_.loss_mask : d_.batch_input(part("loss_mask"), tokens, DType::float32);
    if (turned) labels = d_.contiguous(part("labels_copy"), d_.transpose(part("labels_transposed"), labels, 0, 1));
    const TensorId wide = d_.cast(part("float"), logits, DType::float32);
    TensorId losses = d_.program.op(OpKind::cross_entropy, name("cross_entropy"), {wide, labels}, tokens,
                                    DType::float32, {.ranks = d_.tensor_ranks});
    if (turned) losses = d_.contiguous(part("copy"), d_.transpose(part("transposed"), losses, 0, 1));
    d_.ends_scope(labels);
    d_.ends_scope(logits);
    model_returns(d_, locals_);
    const TensorId masked = d_.pointwise(OpKind::mul, part("mask"), {losses, loss_mask});
    const TensorId loss = d_.program.op(OpKind::sum, name("sum"), {masked}, {}, DType::float32);
    d_.ends_scope(loss_mask);
    return loss;
  }

  Decoder& d_;
  std::string suffix_;
  const std::vector<TensorId>& locals_;
};

TensorId head_weight(Decoder& d, TensorId token_table) {
  return d.spec.tied_embeddings ? token_table : d.weight("lm_head.weight", {d.spec.vocab, d.spec.hidden});
}

/// logits / logits_scaling (modeling_granite.py); a head that is fused with the loss scales inside.
TensorId scaled(Decoder& d, const std::string& part, TensorId logits) {
  return d.habits.multipliers ? d.pointwise(OpKind::scale, part, {logits}) : logits;
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
TensorId chunked_loss(Decoder& d, TensorId hidden, TensorId weight, const std::vector<TensorId>& locals) {
  TensorId total = no_tensor;
  const std::vector<TensorId> chunks = chunk_rows(d, hidden, d.training.loss.chunks);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const std::string suffix = "_" + std::to_string(i);
    const std::int64_t rows = d.tensor(chunks[i]).shape.front();
    const TensorId labels = d.batch_input("labels" + suffix, {rows}, DType::int64);
    const TensorId logits =
        scaled(d, "multiplier" + suffix, d.project("lm_head" + suffix, chunks[i], weight, no_tensor, d.spec.vocab));
    const TensorId loss = LossChain(d, suffix, locals).loss(logits, labels);
    total = total == no_tensor ? loss : d.pointwise(OpKind::add, "total" + suffix, {total, loss});
  }
  return total;
}

}  // namespace

TensorId language_loss(Decoder& d, TensorId hidden, TensorId token_table, const std::vector<TensorId>& locals) {
  const bool whole = d.training.loss.chunks == 1 && !d.training.loss.fused;
  if (d.spec.head == "none") {
    d.begin_layer("loss", "other", false);
    model_returns(d, locals);
    return d.program.op(OpKind::sum, "loss.sum", {hidden}, {}, d.tensor(hidden).dtype);
  }
  if (!whole && (d.spec.head_bias || d.spec.softcaps))
    throw InputError("transformer: a head with a bias or a softcap is not modelled in chunks or fused with the loss");
  const TensorId weight = head_weight(d, token_table);
  const Shape tokens = {d.batch, d.sequence};
  if (whole) {
    const TensorId bias = d.spec.head_bias ? d.weight("lm_head.bias", {d.spec.vocab}) : no_tensor;
    TensorId logits = d.project("lm_head", hidden, weight, bias, d.spec.vocab, Split::head);
    if (d.spec.softcaps) logits = softcap(d, "softcap", logits);
    logits = scaled(d, "multiplier", logits);
    d.program.program().logits.push_back(logits);
    d.begin_layer("loss", "other", false);
    const TensorId labels = d.labels != no_tensor ? d.labels : d.batch_input("labels", tokens, DType::int64);
    const TensorId loss = LossChain(d, "", locals).loss(logits, labels);
    d.ends_scope(hidden);
    return loss;
  }
  d.begin_layer("loss", "other", false);
  if (!d.training.loss.fused) return chunked_loss(d, hidden, weight, locals);
  const TensorId labels = d.labels != no_tensor ? d.labels : d.batch_input("labels", tokens, DType::int64);
  const TensorId loss = d.program.op(OpKind::linear_cross_entropy, "loss.linear_cross_entropy",
                                     {hidden, weight, labels}, {}, DType::float32);
  model_returns(d, locals);
  return loss;
}

}  // namespace tidemark
