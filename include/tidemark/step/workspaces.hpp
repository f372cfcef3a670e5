/// What does a library keep on the device from its first use on, beside what the program asks for?
#pragma once

#include "tidemark/base/units.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// cuBLAS takes one workspace a handle and stream from the framework's allocator, right before the first matrix
/// product, and never gives it back (at::cuda::getCurrentCUDABlasHandle). Handles belong to threads, and backward has
/// its own: a rank has two. Published runs say so too: without the second their resident bytes are 8,519,680 B short.
/// 0: none.
void keep_cublas_workspace(Step& step, Bytes bytes);

}  // namespace tidemark
