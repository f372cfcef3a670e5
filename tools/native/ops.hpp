/// Which ops is a transformer made of, and what does each keep for its backward?
#pragma once

#include "autograd.hpp"

namespace tidemark::native::ops {

extern const Rule embedding;    // ids, table
extern const Rule add;          // x, y; y may repeat over x's first dimension
extern const Rule layer_norm;   // x, weight, bias
extern const Rule linear;       // x, weight [out, in], and perhaps a bias
extern const Rule split;        // x into three, side by side
extern const Rule reshape;      // the settings' shape
extern const Rule transpose;    // the settings' two dimensions swapped
extern const Rule row_major;    // a copy
extern const Rule product;      // a b, batch by batch
extern const Rule scale;        // x times the settings' factor
extern const Rule causal_mask;  // x, mask
extern const Rule softmax;      // over the last dimension
extern const Rule gelu;
extern const Rule cross_entropy;  // logits, labels

/// Is there nothing to copy: does it lie row by row already?
bool is_row_major(const Tensor& tensor);

}  // namespace tidemark::native::ops
