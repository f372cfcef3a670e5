// T5 (transformers, modeling_t5.py): an encoder, a decoder that also attends to its rows, and biases of the scores by
// distance, which the first block of each stack makes for all of its blocks.
#include "decoder.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark {
namespace {

/// One stack's attention: rows that are asked for, what is added to the scores, and to which rows they attend.
struct Stack {
  std::string name;  // "encoder", "decoder"
  std::int64_t layers = 0;
  TensorId mask = no_tensor;     // 0 or the least number: [batch, 1, 1 or rows, rows]
  TensorId bias = no_tensor;     // of self-attention, once the first block has made it
  TensorId encoded = no_tensor;  // the encoder's rows; only a decoder has them
  TensorId cross_mask = no_tensor, cross_bias = no_tensor;
};

class T5 {
 public:
  explicit T5(Decoder& d) : d_(d) {}

  /// ids to the decoder's rows, normed. `locals`: variables of the model's forward.
  TensorId rows(std::vector<TensorId>& locals) {
    d_.begin_layer("encoder.embedding", "other", false);
    const TensorId ids = d_.batch_input("input_ids", {d_.batch, d_.sequence}, DType::int64);
    table_ = d_.weight("tokens.weight", {d_.spec.vocab, d_.spec.hidden});
    Stack encoder{.name = "encoder", .layers = d_.spec.layers};
    const TensorId encoded = run(encoder, ids, {});
    const std::int64_t source = d_.sequence;
    d_.sequence = d_.training.batch.target > 0 ? d_.training.batch.target : source;
    d_.begin_layer("decoder.embedding", "other", false);
    labels_ = d_.batch_input("labels", {d_.batch, d_.sequence}, DType::int64);
    const TensorId shifted = d_.program.op_of_many(  // _shift_right: decoder_start_token_id, then all labels but one
        OpKind::compare, d_.name("shifted_labels"), {labels_, labels_},
        {{d_.name("shifted_labels"), {d_.batch, d_.sequence}, {d_.sequence, 1}, DType::int64, false}})[0];
    Stack decoder{.name = "decoder", .layers = d_.spec.both.decoder_layers, .encoded = encoded};
    const TensorId out = run(decoder, shifted, source);
    locals.insert(locals.end(), {shifted, encoded, out});
    return out;
  }

  TensorId table() const { return table_; }
  TensorId labels() const { return labels_; }

 private:
  /// T5Stack.forward.
  TensorId run(Stack& stack, TensorId ids, std::optional<std::int64_t> source) {
    const DType dtype = d_.tensor(table_).dtype;
    const TensorId words = d_.program.op(OpKind::embedding, d_.name("tokens"), {ids, table_},
                                         {d_.batch, d_.sequence, d_.spec.hidden}, dtype);
    if (!d_.tensor(words).requires_grad && d_.training.lora.input_requires_grad) d_.program.make_leaf(words);
    stack.mask = made("attention_mask", {d_.batch, 1, source ? d_.sequence : 1, d_.sequence});
    if (source) stack.cross_mask = made("cross_attention_mask", {d_.batch, 1, 1, *source});
    TensorId x = d_.dropout("dropout", words, d_.spec.residual_dropout);
    for (std::int64_t i = 0; i < stack.layers; ++i) x = block(stack, i, x);
    d_.begin_layer(stack.name + ".norm", "other", false);
    const TensorId normed = norm(d_, "norm", x);
    const TensorId out = d_.dropout("dropout", normed, d_.spec.residual_dropout);
    // The last block's results are one tuple, which lets go of the last one first.
    for (const TensorId local : {words, stack.mask, stack.cross_mask, stack.cross_bias, stack.bias, x})
      d_.ends_scope(local);
    return out;
  }

  /// T5Block: the sums are variables of it until it returns.
  TensorId block(Stack& stack, std::int64_t number, TensorId x) {
    d_.begin_layer(stack.name + ".layers." + std::to_string(number), "block", true);
    const TensorId mixed = branch(
        "attention", x, [&](TensorId rows) { return attend("attention", rows, rows, stack.mask, stack.bias, true); });
    TensorId crossed = mixed;
    if (stack.encoded != no_tensor)
      crossed = branch("cross_attention", mixed, [&](TensorId rows) {
        return attend("cross_attention", rows, stack.encoded, stack.cross_mask, stack.cross_bias, false);
      });
    const TensorId out =
        branch("mlp", crossed, [&](TensorId rows) { return feed_forward(d_, "mlp", rows, d_.spec.ffn_hidden).out; });
    d_.ends_scope(mixed);
    if (crossed != mixed) d_.ends_scope(crossed);
    d_.ends_scope(x);
    return out;
  }

  /// T5LayerSelfAttention, T5LayerCrossAttention, T5LayerFF: x + dropout(f(norm(x))).
  template <class Inner>
  TensorId branch(const std::string& part, TensorId x, const Inner& inner) {
    const TensorId normed = norm(d_, part + "_norm", x);
    const TensorId out = inner(normed);
    const TensorId dropped = d_.dropout(part + ".output_dropout", out, d_.spec.residual_dropout);
    const TensorId sum = d_.pointwise(OpKind::add, part + "_residual", {x, dropped});
    if (part != "mlp") d_.ends_scope(normed);  // the feed-forward part gives its result the same name
    d_.ends_scope(out);
    return sum;
  }

  TensorId heads(const std::string& part, TensorId x) {
    const TensorId split =
        d_.reshape(part + "_heads", x, {d_.batch, d_.tensor(x).shape.at(1), d_.spec.heads, d_.spec.head_dim});
    return d_.transpose(part + "_transposed", split, 1, 2);
  }

  /// torch.matmul in four dimensions: operands whose batch and heads do not merge are copied, then one bmm.
  TensorId multiplied(const std::string& part, TensorId left, TensorId right, const char* left_name,
                      const char* right_name) {
    const auto flat = [&](const char* name, TensorId x) {
      const Shape shape = d_.tensor(x).shape;
      const Shape merged = {shape[0] * shape[1], shape[2], shape[3]};
      const std::string path = part + "_" + name;
      if (!view_strides(shape, d_.tensor(x).strides, merged)) x = d_.contiguous(path + "_copy", x);
      return d_.reshape(path + "_merged", x, merged);
    };
    // What is copied dies last declared first, once the product is there.
    const TensorId a = flat(left_name, left), b = flat(right_name, right);
    const std::int64_t rows = d_.tensor(a).shape[1], columns = d_.tensor(b).shape[2];
    const TensorId out =
        d_.program.op(OpKind::bmm, d_.name(part), {a, b}, {d_.tensor(a).shape[0], rows, columns}, d_.compute);
    if (b != right) d_.ends_scope(b);
    if (a != left) d_.ends_scope(a);
    return d_.reshape(part + "_split", out, {d_.batch, d_.spec.heads, rows, columns});
  }

  /// T5Attention.forward. Scores are not scaled; the bias is added in place.
  TensorId attend(const std::string& part, TensorId x, TensorId keyed, TensorId mask, TensorId& bias, bool positions) {
    // Rows as a matrix, so that a gradient whose dimensions do not merge is copied on its way into the product.
    const auto project = [&](const std::string& name, TensorId rows) {
      const std::string path = part + "." + name;
      const std::int64_t count = d_.tensor(rows).shape.at(1);
      const TensorId matrix = d_.reshape(path + "_rows", rows, {d_.batch * count, d_.spec.hidden});
      const TensorId made = d_.linear(path + "_proj", matrix, d_.query_width, false);
      return heads(path, d_.reshape(path + "_merged", made, {d_.batch, count, d_.query_width}));
    };
    const TensorId q = project("q", x), k = project("k", keyed), v = project("v", keyed);
    const std::int64_t queries = d_.tensor(q).shape[2], keys = d_.tensor(k).shape[2];
    const std::string core = part + ".core_attn.";
    const TensorId product = multiplied(core + "scores", q, d_.transpose(core + "k_transposed", k, 2, 3), "q", "k");
    if (bias == no_tensor) bias = positions ? position_bias(part, mask, queries, keys) : no_positions(part, mask);
    const TensorId scores = d_.pointwise(OpKind::add, core + "add_bias", {product, bias}, {.in_place = true});
    const TensorId wide = d_.cast(core + "softmax_float", scores, DType::float32);
    const TensorId softmax = d_.pointwise(OpKind::softmax, core + "softmax", {wide});
    const TensorId probabilities = d_.cast(core + "softmax_half", softmax, d_.compute);
    const TensorId weights = d_.dropout(core + "dropout", probabilities, d_.spec.attention_dropout);
    const TensorId context = multiplied(core + "context", weights, v, "weights", "v");
    const TensorId rows = d_.contiguous(core + "merge_copy", d_.transpose(core + "merge_transposed", context, 1, 2));
    const TensorId merged = d_.reshape(part + ".merge", rows, {d_.batch, queries, d_.query_width});
    const TensorId out = d_.linear(part + ".o_proj", merged, d_.spec.hidden, false);
    for (const TensorId local : {q, k, v, scores, weights}) d_.ends_scope(local);
    return out;
  }

  /// compute_bias: buckets of distances, a number for each and head, seen as [1, heads, queries, keys]; the mask is
  /// added, in the order of dimensions that those have in memory.
  TensorId position_bias(const std::string& part, TensorId mask, std::int64_t queries, std::int64_t keys) {
    const std::int64_t heads = d_.spec.heads;
    const TensorId buckets = d_.program.op(OpKind::fill, d_.name(part + ".buckets"), {}, {queries, keys}, DType::int64);
    const TensorId table = d_.weight(part + ".position_bias.weight", {d_.spec.both.buckets, heads});
    const TensorId values = d_.program.op(OpKind::embedding, d_.name(part + ".position_bias"), {buckets, table},
                                          {queries, keys, heads}, d_.tensor(table).dtype);
    const TensorId by_head =
        d_.program.alias(OpKind::view, d_.name(part + ".bias_by_head"), {values}, {heads, queries, keys},
                         {1, keys * heads, heads}, {.dims = {2, 0, 1}, .implementation = "permute"});
    const TensorId seen = d_.program.alias(OpKind::view, d_.name(part + ".bias_seen"), {by_head},
                                           {1, heads, queries, keys}, {queries * keys * heads, 1, keys * heads, heads});
    return d_.program.op_strided(OpKind::add, d_.name(part + ".masked_bias"), {seen, mask},
                                 {d_.batch, heads, queries, keys}, {queries * keys * heads, 1, keys * heads, heads},
                                 d_.tensor(seen).dtype);
  }

  /// Attention across has no positions: zeros, and the mask.
  TensorId no_positions(const std::string& part, TensorId mask) {
    const Shape one = {1, d_.spec.heads, d_.sequence, d_.tensor(mask).shape.back()};
    const TensorId zeros = d_.program.op(OpKind::fill, d_.name(part + ".no_bias"), {}, one, d_.compute);
    Shape all = one;
    all.front() = d_.batch;
    return d_.program.op(OpKind::add, d_.name(part + ".masked_bias"), {zeros, mask}, std::move(all), d_.compute);
  }

  /// Masks are made with a few passing tensors of their size, which differ by release; only the result is modelled.
  TensorId made(const char* part, Shape shape) {
    return d_.program.op(OpKind::custom, d_.name(part), {}, std::move(shape), d_.compute);
  }

  Decoder& d_;
  TensorId table_ = no_tensor, labels_ = no_tensor;
};

}  // namespace

/// T5ForConditionalGeneration: tied heads scale the rows by 1 / sqrt(hidden).
TensorId encoder_decoder_loss(Decoder& d) {
  std::vector<TensorId> locals;
  T5 t5(d);
  TensorId hidden = t5.rows(locals);
  d.begin_layer("head", "other", false);
  if (d.spec.tied_embeddings && d.spec.head == "lm") hidden = d.pointwise(OpKind::scale, "scaled", {hidden});
  d.labels = t5.labels();
  const TensorId loss = language_loss(d, hidden, t5.table(), {});
  const std::vector<TensorId>& logits = d.program.program().logits;
  locals.push_back(hidden);
  locals.insert(locals.end(), logits.begin(), logits.end());
  for (const TensorId local : locals) d.ends_scope(local);
  return loss;
}

}  // namespace tidemark
