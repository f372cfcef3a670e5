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

}  // namespace tidemark::native::kernels
