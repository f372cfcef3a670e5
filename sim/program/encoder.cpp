// BERT and ViT: what stands before and after their blocks (transformers, modeling_bert.py and modeling_vit.py).
#include "decoder.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// BertEmbeddings: words, segments and positions added, a norm, a dropout. Positions are added in place.
TensorId bert_embedding(Decoder& d, TensorId& token_table, std::vector<TensorId>& locals) {
  const Shape tokens = {d.batch, d.sequence};
  const Shape rows = {d.batch, d.sequence, d.spec.hidden};
  const auto lookup = [&](const std::string& part, const std::string& ids, const Shape& shape, std::int64_t table_rows,
                          const Shape& out) {
    const TensorId numbers = d.batch_input(ids, shape, DType::int64);
    const TensorId table = d.weight(part + ".weight", {table_rows, d.spec.hidden});
    if (part == "tokens") token_table = table;
    return d.program.op(OpKind::embedding, d.name(part), {numbers, table}, out, d.tensor(table).dtype);
  };
  const TensorId words = lookup("tokens", "input_ids", tokens, d.spec.vocab, rows);
  TensorId x = words;
  if (d.spec.token_types > 0) {
    const TensorId segments = lookup("token_types", "token_type_ids", tokens, d.spec.token_types, rows);
    x = d.pointwise(OpKind::add, "add_token_types", {words, segments});
    locals.push_back(segments);
  }
  const TensorId positions =
      lookup("positions", "position_ids", {1, d.sequence}, d.spec.max_positions, {1, d.sequence, d.spec.hidden});
  locals.insert(locals.end(), {words, positions});
  x = d.pointwise(OpKind::add, "add_positions", {x, positions}, {.in_place = x != words});
  return d.dropout("dropout", norm(d, "norm", x), d.spec.embedding_dropout);
}

/// ViTEmbeddings: a convolution whose stride is its kernel is one product per patch, read from the picture in place.
TensorId picture_embedding(Decoder& d) {
  const Image& image = d.spec.image;
  const std::int64_t patches = d.sequence - 1;
  const std::int64_t values = image.channels * image.patch * image.patch;
  const DType dtype = d.training.dtypes.autocast ? d.training.dtypes.parameters : d.compute;
  const TensorId pixels = d.batch_input("pixel_values", {d.batch, image.channels, image.size, image.size}, dtype);
  const TensorId patch_rows = d.program.alias(OpKind::view, d.name("patches"), {pixels}, {d.batch, patches, values},
                                              contiguous_strides({d.batch, patches, values}));
  const TensorId projected = d.linear("patch_projection", patch_rows, d.spec.hidden, true);
  const TensorId token = d.weight("class_token", {1, 1, d.spec.hidden});
  const TensorId first =
      d.program.alias(OpKind::view, d.name("class_rows"), {token}, {d.batch, 1, d.spec.hidden}, {0, d.spec.hidden, 1});
  const TensorId rows = d.program.op(OpKind::cat, d.name("rows"), {first, projected},
                                     {d.batch, d.sequence, d.spec.hidden}, d.tensor(projected).dtype);
  const TensorId positions = d.weight("positions", {1, d.sequence, d.spec.hidden});
  return d.dropout("dropout", d.pointwise(OpKind::add, "add_positions", {rows, positions}), d.spec.embedding_dropout);
}

/// The first row of each sequence.
TensorId first_rows(Decoder& d, TensorId hidden) {
  const Tensor& from = d.tensor(hidden);
  Shape strides = {from.strides.at(0), from.strides.at(2)};
  return d.program.alias(OpKind::view, d.name("first_rows"), {hidden}, {d.batch, d.spec.hidden}, std::move(strides),
                         {.implementation = "select"});
}

/// BertPooler.
TensorId pooled(Decoder& d, TensorId hidden) {
  const TensorId rows = first_rows(d, hidden);
  return d.pointwise(OpKind::tanh, "pooler.activation", {d.linear("pooler", rows, d.spec.hidden, true)});
}

TensorId class_loss(Decoder& d, TensorId logits, std::int64_t rows) {
  d.begin_layer("loss", "other", false);
  const TensorId labels = d.batch_input("labels", {rows}, DType::int64);
  if (!d.is(ModelCode::huggingface))
    return d.program.op(OpKind::cross_entropy, d.name("cross_entropy"), {logits, labels}, {}, DType::float32);
  const TensorId flat = d.reshape("flatten", logits, {rows, d.tensor(logits).shape.back()});
  const TensorId log_probabilities = d.pointwise(OpKind::log_softmax, "log_softmax", {flat});
  const DType dtype = d.tensor(log_probabilities).dtype;
  return d.program.op(OpKind::nll_loss, d.name("nll_loss"), {log_probabilities, labels}, {}, dtype);
}

}  // namespace

TensorId encoder_embedding(Decoder& d, TensorId& token_table, std::vector<TensorId>& locals) {
  if (!d.is(ModelCode::reference) && !d.is(ModelCode::huggingface))
    throw InputError("transformer: model_type '" + d.spec.model_type +
                     "' has the model codes reference and huggingface only");
  if (d.spec.image.size > 0) return picture_embedding(d);
  const TensorId x = bert_embedding(d, token_table, locals);
  // get_extended_attention_mask: 0 or the least number, one row a sequence, added to the scores.
  if (d.spec.attention == "eager") {
    d.mask = d.program.op(OpKind::custom, d.name("attention_mask"), {}, {d.batch, 1, 1, d.sequence}, d.compute);
    locals.push_back(d.mask);
  }
  return x;
}

/// BertForSequenceClassification pools; ViTForImageClassification takes the class row; decoders score every row and
/// pick the last one of each sequence (LlamaForSequenceClassification).
TensorId classification_loss(Decoder& d, TensorId hidden) {
  TensorId logits = no_tensor;
  if (d.spec.causal) {
    const TensorId scores = d.linear("score", hidden, d.spec.labels, false);
    const TensorId last = d.program.op(OpKind::fill, d.name("last_rows"), {}, {d.batch}, DType::int64);
    const DType dtype = d.tensor(scores).dtype;
    logits =
        d.program.op(OpKind::index, d.name("pooled_logits"), {scores, last, last}, {d.batch, d.spec.labels}, dtype);
  } else {
    const TensorId rows = d.habits.masked_words ? pooled(d, hidden) : first_rows(d, hidden);
    logits = d.linear("classifier", d.dropout("dropout", rows, d.spec.residual_dropout), d.spec.labels, true);
  }
  return class_loss(d, logits, d.batch);
}

/// BertForMaskedLM: a dense row, its activation and norm, then the words' table again. BertModel alone pools.
TensorId masked_language_loss(Decoder& d, TensorId hidden, TensorId token_table) {
  if (d.spec.head == "none") {
    const TensorId rows = pooled(d, hidden);
    d.begin_layer("loss", "other", false);
    return d.program.op(OpKind::sum, d.name("sum"), {rows}, {}, d.tensor(rows).dtype);
  }
  const TensorId dense = d.pointwise(activation_kind(d.spec.activation), "transform.activation",
                                     {d.linear("transform", hidden, d.spec.hidden, true)});
  const TensorId normed = norm(d, "transform.norm", dense);
  const TensorId table =
      d.spec.tied_embeddings ? token_table : d.weight("decoder.weight", {d.spec.vocab, d.spec.hidden});
  const TensorId bias = d.spec.head_bias ? d.weight("decoder.bias", {d.spec.vocab}) : no_tensor;
  const TensorId logits = d.project("decoder", normed, table, bias, d.spec.vocab);
  d.program.program().logits = {logits};
  return class_loss(d, logits, d.batch * d.sequence);
}

}  // namespace tidemark
