#include "kernels.hpp"

#include <cblas.h>

#include <algorithm>
#include <cstddef>

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

}  // namespace tidemark::native::kernels
