#include "torch_nets.hpp"

#include <functional>
#include <sstream>
#include <stdexcept>

#include "tidemark/program/strides.hpp"

namespace tidemark::test {
namespace {

/// PyTorch calls on a ProgramBuilder. Results are expression temporaries unless `b.hold_until_now` names them.
class Torch {
 public:
  ProgramBuilder b;
  std::string prefix;

  TensorId parameter(const std::string& name, Shape shape) { return b.parameter(name, std::move(shape), f32); }
  const Shape& shape(TensorId t) const { return b.tensor(t).shape; }

  TensorId unary(OpKind kind, const std::string& name, TensorId x, Attributes attributes = {}) {
    const Tensor& in = b.tensor(x);
    return b.op_strided(kind, prefix + name, {x}, in.shape, dense_like(in), f32, attributes);
  }
  TensorId binary(OpKind kind, const std::string& name, TensorId x, TensorId y) {
    const Tensor& in = b.tensor(x);
    return b.op_strided(kind, prefix + name, {x, y}, in.shape, dense_like(in), f32);
  }
  TensorId add(TensorId x, TensorId y) { return binary(OpKind::add, "add", x, y); }
  TensorId mm(TensorId x, TensorId w) {
    return b.op(OpKind::matmul, prefix + "mm", {x, w}, {shape(x)[0], shape(w)[1]}, f32);
  }
  TensorId addmm(TensorId bias, TensorId x, TensorId w) {
    return b.op(OpKind::addmm, prefix + "addmm", {bias, x, w}, {shape(x)[0], shape(w)[1]}, f32);
  }
  TensorId transpose(TensorId x, std::size_t i, std::size_t j) {
    Shape s = shape(x), strides = b.tensor(x).strides;
    std::swap(s[i], s[j]);
    std::swap(strides[i], strides[j]);
    Attributes attributes;
    attributes.dims = {static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)};
    return b.alias(OpKind::view, prefix + "transpose", {x}, s, strides, attributes);
  }
  TensorId contiguous(TensorId x) {
    if (same_layout(shape(x), b.tensor(x).strides, contiguous_strides(shape(x)))) return x;
    return clone(x);
  }
  TensorId clone(TensorId x) { return b.op(OpKind::contiguous, prefix + "clone", {x}, shape(x), f32); }
  /// reshape: a view where the dimensions merge, else a copy seen otherwise.
  TensorId reshape(TensorId x, const Shape& to) {
    const auto strides = view_strides(shape(x), b.tensor(x).strides, to);
    if (strides) return b.alias(OpKind::view, prefix + "view", {x}, to, *strides);
    const TensorId copy = clone(x);
    return b.alias(OpKind::view, prefix + "view", {copy}, to, contiguous_strides(to));
  }
  TensorId slice(TensorId x, Shape to, Shape strides) {
    Attributes attributes;
    attributes.implementation = "slice";
    return b.alias(OpKind::view, prefix + "slice", {x}, std::move(to), std::move(strides), attributes);
  }
  /// F.linear: the weight transposed, then addmm or mm on two dimensions.
  TensorId linear(TensorId x, TensorId w, TensorId bias = -1) { return affine(x, transpose(w, 0, 1), bias); }
  TensorId affine(TensorId x, TensorId wt, TensorId bias) {
    const Shape full = shape(x);
    const std::int64_t n = shape(wt)[1];
    TensorId flat = x;
    if (full.size() > 2) flat = reshape(x, {*element_count(full) / full.back(), full.back()});
    TensorId out = bias < 0 ? mm(flat, wt) : addmm(bias, flat, wt);
    if (full.size() == 2) return out;
    Shape to = full;
    to.back() = n;
    return reshape(out, to);
  }
  /// matmul of four dimensions: operands flattened to three (copied where they do not merge), bmm, seen as four.
  TensorId matmul4(TensorId x, TensorId y) {
    const Shape a = shape(x), c = shape(y);
    const TensorId fx = reshape(x, {a[0] * a[1], a[2], a[3]});
    const TensorId fy = reshape(y, {c[0] * c[1], c[2], c[3]});
    const TensorId out = b.op(OpKind::bmm, prefix + "bmm", {fx, fy}, {a[0] * a[1], a[2], c[3]}, f32);
    for (const TensorId local : {fy, fx}) b.hold_until_now(local);  // C++ locals: last declared first
    return reshape(out, {a[0], a[1], a[2], c[3]});
  }
  TensorId layer_norm(TensorId x, TensorId gain, TensorId shift) {
    return b.op(OpKind::layer_norm, prefix + "layer_norm", {x, gain, shift}, shape(x), f32);
  }
  TensorId dropout(TensorId x, double p) {
    Attributes attributes;
    attributes.probability = p;
    if (p == 0) return x;
    return unary(OpKind::dropout, "dropout", x, attributes);
  }
  TensorId embedding(TensorId ids, TensorId table) {
    Shape to = shape(ids);
    to.push_back(shape(table)[1]);
    return b.op(OpKind::embedding, prefix + "embedding", {ids, table}, to, f32);
  }
  TensorId cross_entropy(TensorId logits, TensorId target) {
    const TensorId log_p = b.op(OpKind::log_softmax, prefix + "log_softmax", {logits}, shape(logits), f32);
    return b.op(OpKind::nll_loss, prefix + "nll_loss", {log_p, target}, {}, f32);
  }

  static constexpr DType f32 = DType::float32;

 private:
  static Shape dense_like(const Tensor& t) {
    return is_dense(t.shape, t.strides) ? t.strides : contiguous_strides(t.shape);
  }
};

using Settings = std::map<std::string, std::string>;
std::int64_t number(const Settings& net, const std::string& key, std::int64_t otherwise = 0) {
  const auto found = net.find(key);
  return found == net.end() ? otherwise : std::stoll(found->second);
}
std::string text(const Settings& net, const std::string& key, const std::string& otherwise) {
  const auto found = net.find(key);
  return found == net.end() ? otherwise : found->second;
}

OpKind activation_of(const std::string& name) {
  if (name == "relu") return OpKind::relu;
  if (name == "gelu") return OpKind::gelu;
  if (name == "tanh") return OpKind::tanh;
  if (name == "silu") return OpKind::silu;
  throw std::runtime_error("activation " + name);
}

Program mlp(const Settings& net) {
  const std::int64_t layers = number(net, "L"), n = number(net, "n"), d = number(net, "d"), h = number(net, "h");
  const std::string style = text(net, "style", "matmul"), loss = text(net, "loss", "mse");
  const OpKind act = activation_of(text(net, "act", "relu"));
  Torch t;
  TensorId x = t.b.input("x", {n, d}, Torch::f32, text(net, "xgrad", "True") == "True");
  const TensorId target = t.b.input("target", {n, d}, Torch::f32);
  for (std::int64_t i = 0; i < layers; ++i) {
    t.prefix = std::to_string(i) + ".";
    t.b.begin_layer(std::to_string(i), "block", true);
    const TensorId w1 = t.parameter(t.prefix + "w1", {d, h}), b1 = t.parameter(t.prefix + "b1", {h});
    const TensorId w2 = t.parameter(t.prefix + "w2", {h, d}), b2 = t.parameter(t.prefix + "b2", {d});
    TensorId out = -1;
    if (style == "matmul") {
      out = t.add(t.mm(t.unary(act, "act", t.add(t.mm(x, w1), b1)), w2), b2);
    } else if (style == "addmm") {
      out = t.addmm(b2, t.unary(act, "act", t.addmm(b1, x, w1)), w2);
    } else if (style == "linear") {
      const TensorId hidden = t.affine(x, t.transpose(t.transpose(w1, 0, 1), 0, 1), b1);
      out = t.affine(t.unary(act, "act", hidden), t.transpose(t.transpose(w2, 0, 1), 0, 1), b2);
    } else if (style == "inplace") {
      Attributes in_place;
      in_place.in_place = true;
      out = t.add(t.mm(t.unary(act, "act_", t.addmm(b1, x, w1), in_place), w2), b2);
    } else {
      out = t.add(x, t.addmm(b2, t.unary(act, "act", t.addmm(b1, x, w1)), w2));
    }
    t.b.hold_until_now(x);  // h = unit(h): rebound when the unit returns
    x = out;
  }
  t.prefix = "loss.";
  if (loss == "grad") {  // out.backward(g)
    t.b.program().loss_gradient = t.b.input("grad_output", {n, d}, Torch::f32);
    return t.b.finish(x);
  }
  t.b.begin_layer("loss", "other", false);
  const TensorId value = loss == "sum" ? t.b.op(OpKind::sum, "loss.sum", {x}, {}, Torch::f32)
                                       : t.b.op(OpKind::mse_loss, "loss.mse", {x, target}, {}, Torch::f32);
  t.b.hold_until_now(x);  // del out
  return t.b.finish(value);
}

struct Heads {
  std::int64_t batch, rows, heads, head_dim;
};
TensorId heads(Torch& t, TensorId x, const Heads& h) {
  return t.transpose(t.reshape(x, {h.batch, h.rows, h.heads, h.head_dim}), 1, 2);
}
TensorId merge(Torch& t, TensorId x, const Heads& h) {
  return t.reshape(t.contiguous(t.transpose(x, 1, 2)), {h.batch, h.rows, h.heads * h.head_dim});
}

Program gpt(const Settings& net) {
  const std::int64_t layers = number(net, "L"), batch = number(net, "B"), rows = number(net, "T"), d = number(net, "d"),
                     n_heads = number(net, "H"), vocab = number(net, "V"), ff = number(net, "ff", 4);
  const double p = std::stod(text(net, "p", "0.1"));
  const bool sdpa = text(net, "sdpa", "False") == "True", tied = text(net, "tied", "False") == "True";
  const Heads h{batch, rows, n_heads, d / n_heads};
  Torch t;
  const TensorId ids = t.b.input("ids", {batch, rows}, DType::int64);
  const TensorId target = t.b.input("target", {batch, rows}, DType::int64);
  const TensorId mask = t.b.input("mask", {rows, rows}, DType::boolean);
  const TensorId pos = t.b.input("pos", {rows}, DType::int64);
  t.b.begin_layer("embed", "other", false);
  t.prefix = "embed.";
  const TensorId wte = t.parameter("wte", {vocab, d}), wpe = t.parameter("wpe", {rows, d});
  const TensorId tokens = t.embedding(ids, wte), positions = t.embedding(pos, wpe);
  TensorId x = t.dropout(t.add(tokens, positions), p);
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string s = std::to_string(i) + ".";
    t.prefix = s;
    t.b.begin_layer(std::to_string(i), "block", true);
    const TensorId g1 = t.parameter(s + "ln1.g", {d}), c1 = t.parameter(s + "ln1.b", {d});
    const TensorId wa = t.parameter(s + "qkv.w", {3 * d, d}), ba = t.parameter(s + "qkv.b", {3 * d});
    const TensorId wo = t.parameter(s + "o.w", {d, d}), bo = t.parameter(s + "o.b", {d});
    const TensorId g2 = t.parameter(s + "ln2.g", {d}), c2 = t.parameter(s + "ln2.b", {d});
    const TensorId wf = t.parameter(s + "fc.w", {ff * d, d}), bf = t.parameter(s + "fc.b", {ff * d});
    const TensorId wp = t.parameter(s + "pr.w", {d, ff * d}), bp = t.parameter(s + "pr.b", {d});
    const TensorId qkv = t.linear(t.layer_norm(x, g1, c1), wa, ba);
    const Shape part{batch, rows, d}, strides = t.b.tensor(qkv).strides;
    const std::vector<TensorId> split =
        t.b.split(s + "split", qkv, {{s + "q", part, strides}, {s + "k", part, strides}, {s + "v", part, strides}});
    const TensorId q = heads(t, split[0], h), k = heads(t, split[1], h), v = heads(t, split[2], h);
    t.prefix = s + "core.";
    TensorId a = -1;
    if (sdpa) {
      Attributes attributes;
      attributes.causal = true;
      // The kernel writes [batch, rows, heads, head_dim] and returns it transposed.
      const Shape out{batch, n_heads, rows, h.head_dim};
      a = t.b.op_strided(OpKind::attention, t.prefix + "sdpa", {q, k, v}, out, {rows * d, h.head_dim, d, 1}, Torch::f32,
                         attributes);
      for (const TensorId name : {q, k, v}) t.b.hold_until_now(name);
    } else {
      TensorId scores = t.unary(OpKind::scale, "scale", t.matmul4(q, t.transpose(k, 2, 3)));
      const TensorId masked = t.binary(OpKind::masked_fill, "masked_fill", scores, mask);
      t.b.hold_until_now(scores);  // a = a.masked_fill(..)
      const TensorId weights =
          t.dropout(t.b.op(OpKind::softmax, t.prefix + "softmax", {masked}, t.shape(masked), Torch::f32), p);
      t.b.hold_until_now(masked);  // a = dropout(softmax(a))
      a = t.matmul4(weights, v);
      for (const TensorId name : {weights, q, k, v}) t.b.hold_until_now(name);  // core returns
    }
    t.prefix = s;
    t.b.hold_until_now(qkv);                                     // a = core(..)
    for (const TensorId name : split) t.b.hold_until_now(name);  // del qq, kk, vv
    const TensorId merged = merge(t, a, h);
    t.b.hold_until_now(a);
    const TensorId x1 = t.add(x, t.dropout(t.linear(merged, wo, bo), p));
    t.b.hold_until_now(merged);  // del a
    const TensorId out = t.add(
        x1, t.dropout(t.linear(t.unary(OpKind::gelu, "gelu", t.linear(t.layer_norm(x1, g2, c2), wf, bf)), wp, bp), p));
    t.b.hold_until_now(x1);
    t.b.hold_until_now(x);  // h = unit(h)
    x = out;
  }
  t.b.begin_layer("head", "other", false);
  t.prefix = "head.";
  const TensorId gf = t.parameter("lnf.g", {d}), cf = t.parameter("lnf.b", {d});
  const TensorId head = tied ? wte : t.parameter("head.w", {vocab, d});
  const TensorId logits = t.linear(t.layer_norm(x, gf, cf), head);
  t.b.hold_until_now(x);
  t.b.begin_layer("loss", "other", false);
  t.prefix = "loss.";
  const TensorId flat = t.reshape(logits, {batch * rows, vocab});
  const TensorId loss = t.cross_entropy(flat, target);
  t.b.hold_until_now(flat);
  t.b.hold_until_now(logits);
  return t.b.finish(loss);
}

Program bert(const Settings& net) {
  const std::int64_t layers = number(net, "L"), batch = number(net, "B"), rows = number(net, "T"), d = number(net, "d"),
                     n_heads = number(net, "H"), vocab = number(net, "V"), ff = number(net, "ff", 4),
                     classes = number(net, "classes");
  const double p = std::stod(text(net, "p", "0.1"));
  const Heads h{batch, rows, n_heads, d / n_heads};
  Torch t;
  const TensorId ids = t.b.input("ids", {batch, rows}, DType::int64);
  const TensorId target = t.b.input("target", classes > 0 ? Shape{batch} : Shape{batch, rows}, DType::int64);
  const TensorId pad = t.b.input("pad", {batch, 1, 1, rows}, Torch::f32);
  const TensorId pos = t.b.input("pos", {rows}, DType::int64);
  t.b.begin_layer("embed", "other", false);
  t.prefix = "embed.";
  const TensorId wte = t.parameter("wte", {vocab, d}), wpe = t.parameter("wpe", {rows, d});
  const TensorId ge = t.parameter("lne.g", {d}), ce = t.parameter("lne.b", {d});
  const TensorId tokens = t.embedding(ids, wte), positions = t.embedding(pos, wpe);
  TensorId x = t.dropout(t.layer_norm(t.add(tokens, positions), ge, ce), p);
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string s = std::to_string(i) + ".";
    t.prefix = s;
    t.b.begin_layer(std::to_string(i), "block", true);
    std::map<std::string, std::pair<TensorId, TensorId>> w;
    for (const std::string name : {"q", "k", "v", "o"})
      w[name] = {t.parameter(s + name + ".w", {d, d}), t.parameter(s + name + ".b", {d})};
    w["l1"] = {t.parameter(s + "l1.g", {d}), t.parameter(s + "l1.b", {d})};
    w["f"] = {t.parameter(s + "f.w", {ff * d, d}), t.parameter(s + "f.b", {ff * d})};
    w["g"] = {t.parameter(s + "g.w", {d, ff * d}), t.parameter(s + "g.b", {d})};
    w["l2"] = {t.parameter(s + "l2.g", {d}), t.parameter(s + "l2.b", {d})};
    const auto linear = [&](TensorId in, const std::string& name) {
      return t.linear(in, w[name].first, w[name].second);
    };
    const auto norm = [&](TensorId in, const std::string& name) {
      return t.layer_norm(in, w[name].first, w[name].second);
    };
    const TensorId q = heads(t, linear(x, "q"), h), k = heads(t, linear(x, "k"), h), v = heads(t, linear(x, "v"), h);
    const TensorId scores = t.unary(OpKind::scale, "scale", t.matmul4(q, t.transpose(k, 2, 3)));
    t.b.hold_until_now(q);  // del qq, kk
    t.b.hold_until_now(k);
    const TensorId padded = t.add(scores, pad);
    const TensorId weights =
        t.dropout(t.b.op(OpKind::softmax, s + "softmax", {padded}, t.shape(padded), Torch::f32), p);
    t.b.hold_until_now(scores);
    const TensorId merged = merge(t, t.matmul4(weights, v), h);
    t.b.hold_until_now(weights);
    t.b.hold_until_now(v);
    const TensorId x1 = norm(t.add(t.dropout(linear(merged, "o"), p), x), "l1");
    t.b.hold_until_now(merged);
    const TensorId out =
        norm(t.add(t.dropout(linear(t.unary(OpKind::gelu, "gelu", linear(x1, "f")), "g"), p), x1), "l2");
    t.b.hold_until_now(x1);
    t.b.hold_until_now(x);  // h = unit(h)
    x = out;
  }
  t.b.begin_layer("head", "other", false);
  t.prefix = "head.";
  TensorId logits = -1;
  if (classes > 0) {
    const TensorId wc = t.parameter("cls.w", {classes, d}), bc = t.parameter("cls.b", {classes});
    const TensorId wq = t.parameter("pool.w", {d, d}), bq = t.parameter("pool.b", {d});
    const TensorId all = t.slice(x, {batch, rows, d}, {rows * d, d, 1});
    const TensorId first = t.slice(all, {batch, d}, {rows * d, 1});
    logits = t.linear(t.unary(OpKind::tanh, "tanh", t.linear(first, wq, bq)), wc, bc);
  } else {
    const TensorId wh = t.parameter("mlm.w", {vocab, d}), bh = t.parameter("mlm.b", {vocab});
    logits = t.linear(x, wh, bh);
  }
  t.b.hold_until_now(x);
  t.b.begin_layer("loss", "other", false);
  t.prefix = "loss.";
  const TensorId flat = classes > 0 ? logits : t.reshape(logits, {batch * rows, vocab});
  const TensorId loss = t.cross_entropy(flat, target);
  t.b.hold_until_now(flat);
  t.b.hold_until_now(logits);
  return t.b.finish(loss);
}

Program dag(const Settings& net) {
  const std::int64_t n = number(net, "n"), d = number(net, "d"), depth = number(net, "depth");
  const std::string kind = net.at("kind");
  Torch t;
  TensorId x = t.b.input("x", {n, d}, Torch::f32, true);
  const TensorId target = t.b.input("target", {n, d}, Torch::f32);
  t.b.begin_layer("0", "block", true);
  std::vector<TensorId> w;
  for (std::int64_t i = 0; i < (kind == "shared" ? 2 : depth); ++i)
    w.push_back(t.parameter("w" + std::to_string(i), {d, d}));
  const auto at = [&](std::int64_t i) { return w[static_cast<std::size_t>(i)]; };
  const auto relu = [&](TensorId in) { return t.unary(OpKind::relu, "relu", in); };
  const auto tanh = [&](TensorId in) { return t.unary(OpKind::tanh, "tanh", in); };
  const auto rebind = [&](TensorId& name, TensorId to) {
    t.b.hold_until_now(name);
    name = to;
  };
  if (kind == "diamond") {
    for (std::int64_t i = 0; i < depth; i += 2) {
      const TensorId left = relu(t.mm(x, at(i))), right = tanh(t.mm(x, at(i + 1)));
      rebind(x, t.add(left, right));
    }
  } else if (kind == "dense") {
    std::vector<TensorId> outs = {x};
    TensorId s = -1;
    for (std::int64_t i = 0; i < depth; ++i) {
      if (s >= 0 && s != x) t.b.hold_until_now(s);
      s = outs[0];
      for (std::size_t o = 1; o < outs.size(); ++o) {
        const TensorId next = t.add(s, outs[o]);
        if (s != x) t.b.hold_until_now(s);
        s = next;
      }
      outs.push_back(relu(t.mm(s, at(i))));
    }
    // whole returns outs[-1]: the other names go, in the order the function's locals are cleared.
    for (std::size_t o = 1; o + 1 < outs.size(); ++o) t.b.hold_until_now(outs[o]);
    if (s != x) t.b.hold_until_now(s);
    x = outs.back();
  } else if (kind == "skip") {
    std::vector<TensorId> kept;
    for (std::int64_t i = 0; i < depth / 2; ++i) {
      rebind(x, relu(t.mm(x, at(i))));
      kept.push_back(x);
    }
    for (std::int64_t i = depth / 2; i < depth; ++i) {
      const TensorId skip = kept.back();
      kept.pop_back();
      rebind(x, relu(t.add(t.mm(x, at(i)), skip)));
    }
  } else if (kind == "fan") {
    const TensorId h = relu(t.mm(x, at(0)));
    TensorId y = t.mm(h, at(1));
    for (std::int64_t i = 2; i < depth; ++i) rebind(y, t.add(y, t.mm(h, at(i))));
    t.b.hold_until_now(h);
    x = y;
  } else {
    TensorId h = x;
    for (std::int64_t i = 0; i < depth; ++i) {
      const TensorId left = t.mm(h, at(0)), right = t.mm(x, at(1));
      rebind(h, tanh(t.add(left, right)));
    }
    x = h;
  }
  t.b.begin_layer("loss", "other", false);
  const TensorId loss = t.b.op(OpKind::mse_loss, "loss.mse", {x, target}, {}, Torch::f32);
  t.b.hold_until_now(x);
  return t.b.finish(loss);
}

}  // namespace

std::map<std::string, std::string> settings(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    out[word.substr(0, at)] = word.substr(at + 1);
  }
  return out;
}

Program torch_net(const std::string& family, const Settings& net) {
  if (family == "mlp") return mlp(net);
  if (family == "gpt") return gpt(net);
  if (family == "bert") return bert(net);
  if (family == "dag") return dag(net);
  throw std::runtime_error("no network of family " + family);
}

}  // namespace tidemark::test
