#include "kernels.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>

namespace tidemark::native::kernels {

void set_threads(int threads) { openblas_set_num_threads(threads); }

void multiply(Matrix a, Matrix b, float* c, std::int64_t c_stride, std::int64_t m, std::int64_t n, std::int64_t k,
              bool add) {
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0F, a.data,
              static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), add ? 1.0F : 0.0F, c,
              static_cast<blasint>(c_stride));
}

std::int64_t multiply_flops(std::int64_t m, std::int64_t n, std::int64_t k) { return 2 * m * n * k; }

void add_bias(const float* x, const float* bias, float* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) out[r * columns + c] = x[r * columns + c] + bias[c];
}

void sum_rows(const float* x, float* out, std::int64_t rows, std::int64_t columns) {
  std::fill_n(out, columns, 0.0F);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) out[c] += x[r * columns + c];
}

void relu(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = std::max(x[i], 0.0F);
}

void is_positive(const float* x, std::uint8_t* mask, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) mask[i] = x[i] > 0 ? 1 : 0;
}

void multiply_mask(const float* x, const std::uint8_t* mask, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * static_cast<float>(mask[i]);
}

void add(const float* a, const float* b, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void add_to(float* total, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) total[i] += x[i];
}

void scale(const float* x, float factor, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

void gelu(const float* x, float* out, std::int64_t n) {
  constexpr float half_root = 0.70710678118654752F;
  for (std::int64_t i = 0; i < n; ++i) out[i] = 0.5F * x[i] * (1 + std::erf(x[i] * half_root));
}

void gelu_backward(const float* x, const float* g, float* gx, std::int64_t n) {
  constexpr float half_root = 0.70710678118654752F;
  constexpr float density = 0.39894228040143268F;  // 1 / sqrt(2 pi)
  for (std::int64_t i = 0; i < n; ++i) {
    const float below = 0.5F * (1 + std::erf(x[i] * half_root));
    gx[i] = g[i] * (below + x[i] * density * std::exp(-0.5F * x[i] * x[i]));
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float* out, float* mean, float* rstd,
                std::int64_t rows, std::int64_t columns) {
  constexpr float epsilon = 1e-5F;
  const auto n = static_cast<float>(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * columns;
    float sum = 0, squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += row[c];
    mean[r] = sum / n;
    for (std::int64_t c = 0; c < columns; ++c) squares += (row[c] - mean[r]) * (row[c] - mean[r]);
    rstd[r] = 1 / std::sqrt(squares / n + epsilon);
    for (std::int64_t c = 0; c < columns; ++c)
      out[r * columns + c] = (row[c] - mean[r]) * rstd[r] * weight[c] + bias[c];
  }
}

void layer_norm_backward(const float* x, const float* weight, const float* mean, const float* rstd, const float* g,
                         float* gx, float* gweight, float* gbias, std::int64_t rows, std::int64_t columns) {
  std::fill_n(gweight, columns, 0.0F);
  std::fill_n(gbias, columns, 0.0F);
  const auto n = static_cast<float>(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * columns;
    const float* grow = g + r * columns;
    float sum = 0, dot = 0;  // of g * weight, and of that with the normed row
    for (std::int64_t c = 0; c < columns; ++c) {
      const float normed = (row[c] - mean[r]) * rstd[r];
      sum += grow[c] * weight[c];
      dot += grow[c] * weight[c] * normed;
      gweight[c] += grow[c] * normed;
      gbias[c] += grow[c];
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      const float normed = (row[c] - mean[r]) * rstd[r];
      gx[r * columns + c] = rstd[r] * (grow[c] * weight[c] - (sum + normed * dot) / n);
    }
  }
}

void masked_fill(const float* x, const std::uint8_t* mask, float fill, float* out, std::int64_t n,
                 std::int64_t mask_n) {
  for (std::int64_t begin = 0; begin < n; begin += mask_n)
    for (std::int64_t i = 0; i < mask_n; ++i) out[begin + i] = mask[i] != 0 ? fill : x[begin + i];
}

void softmax(const float* x, float* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * columns;
    float* to = out + r * columns;
    const float highest = *std::max_element(row, row + columns);
    float sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c] = std::exp(row[c] - highest);
      sum += to[c];
    }
    for (std::int64_t c = 0; c < columns; ++c) to[c] /= sum;
  }
}

void softmax_backward(const float* out, const float* g, float* gx, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = out + r * columns;
    const float* grow = g + r * columns;
    float dot = 0;
    for (std::int64_t c = 0; c < columns; ++c) dot += row[c] * grow[c];
    for (std::int64_t c = 0; c < columns; ++c) gx[r * columns + c] = row[c] * (grow[c] - dot);
  }
}

void embedding(const std::int64_t* ids, const float* table, float* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(table + ids[r] * columns, columns, out + r * columns);
}

void embedding_backward(const std::int64_t* ids, const float* g, float* gtable, std::int64_t table_rows,
                        std::int64_t rows, std::int64_t columns) {
  std::fill_n(gtable, table_rows * columns, 0.0F);
  for (std::int64_t r = 0; r < rows; ++r) add_to(gtable + ids[r] * columns, g + r * columns, columns);
}

void cross_entropy(const float* logits, const std::int64_t* labels, float* loss, float* logsumexp, std::int64_t rows,
                   std::int64_t columns) {
  float total = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * columns;
    const float highest = *std::max_element(row, row + columns);
    float sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(row[c] - highest);
    logsumexp[r] = highest + std::log(sum);
    total += logsumexp[r] - row[labels[r]];
  }
  *loss = total / static_cast<float>(rows);
}

void cross_entropy_backward(const float* logits, const std::int64_t* labels, const float* logsumexp, const float* g,
                            float* glogits, std::int64_t rows, std::int64_t columns) {
  const float share = *g / static_cast<float>(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      glogits[r * columns + c] = share * std::exp(logits[r * columns + c] - logsumexp[r]);
    glogits[r * columns + labels[r]] -= share;
  }
}

void copy(const float* x, const Layout& from, float* out, const Layout& to) {
  for (std::int64_t i = 0; i < from.shape[0]; ++i)
    for (std::int64_t j = 0; j < from.shape[1]; ++j)
      for (std::int64_t k = 0; k < from.shape[2]; ++k) {
        const float* row = x + i * from.strides[0] + j * from.strides[1] + k * from.strides[2];
        float* to_row = out + i * to.strides[0] + j * to.strides[1] + k * to.strides[2];
        for (std::int64_t l = 0; l < from.shape[3]; ++l) to_row[l * to.strides[3]] = row[l * from.strides[3]];
      }
}

void adamw_moments(const AdamW& settings, float* parameter, const float* g, float* mean, float* variance,
                   std::int64_t n) {
  const float kept = 1 - settings.rate * settings.decay;
  for (std::int64_t i = 0; i < n; ++i) {
    parameter[i] *= kept;
    mean[i] = settings.beta1 * mean[i] + (1 - settings.beta1) * g[i];
    variance[i] = settings.beta2 * variance[i] + (1 - settings.beta2) * g[i] * g[i];
  }
}

void square_root(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = std::sqrt(x[i]);
}

namespace {

/// The learning rate and the square roots' factor, each corrected for moments that began at zero.
struct Corrected {
  explicit Corrected(const AdamW& settings)
      : rate(settings.rate / (1 - std::pow(settings.beta1, static_cast<float>(settings.step)))),
        root(1 / std::sqrt(1 - std::pow(settings.beta2, static_cast<float>(settings.step)))) {}
  float rate, root;
};

}  // namespace

void adamw_update(const AdamW& settings, float* parameter, const float* mean, const float* root, std::int64_t n) {
  const Corrected by(settings);
  for (std::int64_t i = 0; i < n; ++i) parameter[i] -= by.rate * mean[i] / (root[i] * by.root + settings.epsilon);
}

void adamw_update_fused(const AdamW& settings, float* parameter, const float* mean, const float* variance,
                        std::int64_t n) {
  const Corrected by(settings);
  for (std::int64_t i = 0; i < n; ++i)
    parameter[i] -= by.rate * mean[i] / (std::sqrt(variance[i]) * by.root + settings.epsilon);
}

}  // namespace tidemark::native::kernels
