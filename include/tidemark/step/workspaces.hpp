/// What does a library keep on the device from its first use on, beside what the program asks for?
#pragma once

#include "tidemark/base/units.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// cuBLAS takes one workspace a stream from the framework's allocator, right before its first matrix product, and never
/// gives it back (at::cuda::getCurrentCUDABlasHandle). Each rank has its own. 0 bytes: none.
void keep_cublas_workspace(Step& step, Bytes bytes);

}  // namespace tidemark
