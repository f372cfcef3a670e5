/// What do the native programs compute, on bare memory?
///
/// Row-major float matrices. A kernel reads its inputs, writes its outputs and allocates nothing.
#pragma once

#include <cstdint>

namespace tidemark::native::kernels {

/// OpenBLAS's own threads; one by default, so that a step's times are its own.
void set_threads(int threads);

/// A matrix as BLAS reads it: `stride` elements from row to row; transposed: as it is stored the other way round.
struct Matrix {
  const float* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};
/// c[m, n] = a[m, k] b[k, n], rows of c `stride` elements apart; added to c where `add` is set.
void multiply(Matrix a, Matrix b, float* c, std::int64_t c_stride, std::int64_t m, std::int64_t n, std::int64_t k,
              bool add = false);
/// The FLOPs of that: 2 m n k.
std::int64_t multiply_flops(std::int64_t m, std::int64_t n, std::int64_t k);

/// out = x + bias, a bias a column. out may be x.
void add_bias(const float* x, const float* bias, float* out, std::int64_t rows, std::int64_t columns);
/// out[column] = sum over rows.
void sum_rows(const float* x, float* out, std::int64_t rows, std::int64_t columns);

void relu(const float* x, float* out, std::int64_t n);
/// mask = x > 0
void is_positive(const float* x, std::uint8_t* mask, std::int64_t n);
void multiply_mask(const float* x, const std::uint8_t* mask, float* out, std::int64_t n);

void add(const float* a, const float* b, float* out, std::int64_t n);
/// total += x
void add_to(float* total, const float* x, std::int64_t n);
/// out = x * factor
void scale(const float* x, float factor, float* out, std::int64_t n);

/// GELU with the error function, and its derivative times g.
void gelu(const float* x, float* out, std::int64_t n);
void gelu_backward(const float* x, const float* g, float* gx, std::int64_t n);

/// (x - mean) * rstd * weight + bias, row by row.
void layer_norm(const float* x, const float* weight, const float* bias, float* out, float* mean, float* rstd,
                std::int64_t rows, std::int64_t columns);
void layer_norm_backward(const float* x, const float* weight, const float* mean, const float* rstd, const float* g,
                         float* gx, float* gweight, float* gbias, std::int64_t rows, std::int64_t columns);

/// out = mask ? fill : x; the mask of `mask_n` elements repeats. Backward: no gradient where it fills.
void masked_fill(const float* x, const std::uint8_t* mask, float fill, float* out, std::int64_t n, std::int64_t mask_n);
void softmax(const float* x, float* out, std::int64_t rows, std::int64_t columns);
void softmax_backward(const float* out, const float* g, float* gx, std::int64_t rows, std::int64_t columns);

/// out[row] = table[ids[row]]; backward: gtable, zero but for the rows that were read.
void embedding(const std::int64_t* ids, const float* table, float* out, std::int64_t rows, std::int64_t columns);
void embedding_backward(const std::int64_t* ids, const float* g, float* gtable, std::int64_t table_rows,
                        std::int64_t rows, std::int64_t columns);

/// The mean over rows of log(sum(exp(logits))) - logits[label]; `logsumexp` a row is kept for backward.
void cross_entropy(const float* logits, const std::int64_t* labels, float* loss, float* logsumexp, std::int64_t rows,
                   std::int64_t columns);
void cross_entropy_backward(const float* logits, const std::int64_t* labels, const float* logsumexp, const float* g,
                            float* glogits, std::int64_t rows, std::int64_t columns);

/// A row-major copy of up to four dimensions that lie anywhere.
struct Layout {
  std::int64_t shape[4];
  std::int64_t strides[4];
};
void copy(const float* x, const Layout& from, float* out, const Layout& to);

struct AdamW {
  float rate = 1e-3F, beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F, decay = 0.01F;
  int step = 1;  // from 1
};
/// The moments, and the parameter's decay; then, from the second moment's square root, the parameter.
void adamw_moments(const AdamW& settings, float* parameter, const float* g, float* mean, float* variance,
                   std::int64_t n);
void square_root(const float* x, float* out, std::int64_t n);
void adamw_update(const AdamW& settings, float* parameter, const float* mean, const float* root, std::int64_t n);
/// The same from the second moment itself.
void adamw_update_fused(const AdamW& settings, float* parameter, const float* mean, const float* variance,
                        std::int64_t n);

}  // namespace tidemark::native::kernels
