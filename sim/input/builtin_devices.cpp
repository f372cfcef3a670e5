#include "tidemark/input/builtin_devices.hpp"

#include <algorithm>
#include <array>

namespace tidemark {
namespace {

// cuBLAS workspaces: CUBLAS_WORKSPACE_CONFIG's default in PyTorch 2.6, :4096:2:16:8, and 32 MiB on compute
// capability 9.
struct Builtin {
  std::string_view name;
  std::string_view yaml;
};

constexpr std::array<Builtin, 8> devices = {{
    {"a100-40gb", R"(# NVIDIA A100 40GB SXM (datasheet 2021), dense.
name: a100-40gb
capacity: 40 GiB
flops: {float32: 19.5 TFLOP/s, bfloat16: 312 TFLOP/s, float16: 312 TFLOP/s, float64: 9.7 TFLOP/s}
memory_bandwidth: 1555 GB/s
copy_bandwidth: {to_host: 32 GB/s, to_device: 32 GB/s}
link_bandwidth: 300 GB/s
workspaces: {cublas: 8519680 B}
)"},
    {"a100-80gb", R"(# NVIDIA A100 80GB SXM (datasheet 2021), dense.
name: a100-80gb
capacity: 80 GiB
flops: {float32: 19.5 TFLOP/s, bfloat16: 312 TFLOP/s, float16: 312 TFLOP/s, float64: 9.7 TFLOP/s}
memory_bandwidth: 2039 GB/s
copy_bandwidth: {to_host: 32 GB/s, to_device: 32 GB/s}
link_bandwidth: 300 GB/s
workspaces: {cublas: 8519680 B}
)"},
    {"h100-80gb", R"(# NVIDIA H100 80GB SXM5 (datasheet 2023), dense: half of the figures with sparsity.
name: h100-80gb
capacity: 80 GiB
flops: {float32: 67 TFLOP/s, bfloat16: 989.5 TFLOP/s, float16: 989.5 TFLOP/s, float8: 1979 TFLOP/s, float64: 34 TFLOP/s}
memory_bandwidth: 3350 GB/s
copy_bandwidth: {to_host: 64 GB/s, to_device: 64 GB/s}
link_bandwidth: 450 GB/s
workspaces: {cublas: 32 MiB}
)"},
    {"h200", R"(# NVIDIA H200 141GB SXM5 (datasheet 2024), dense: half of the figures with sparsity.
name: h200
capacity: 141 GB
flops: {float32: 67 TFLOP/s, bfloat16: 989.5 TFLOP/s, float16: 989.5 TFLOP/s, float8: 1979 TFLOP/s, float64: 34 TFLOP/s}
memory_bandwidth: 4800 GB/s
copy_bandwidth: {to_host: 64 GB/s, to_device: 64 GB/s}
link_bandwidth: 450 GB/s
workspaces: {cublas: 32 MiB}
)"},
    {"l4", R"(# NVIDIA L4 24GB (datasheet 2023), dense: half of the figures with sparsity.
name: l4
capacity: 24 GB
flops: {float32: 30.3 TFLOP/s, bfloat16: 121 TFLOP/s, float16: 121 TFLOP/s, float8: 242.5 TFLOP/s}
memory_bandwidth: 300 GB/s
copy_bandwidth: {to_host: 32 GB/s, to_device: 32 GB/s}
workspaces: {cublas: 8519680 B}
)"},
    {"mi300x", R"(# AMD Instinct MI300X 192GB (datasheet 2023), dense.
name: mi300x
capacity: 192 GiB
flops: {float32: 163.4 TFLOP/s, bfloat16: 1307.4 TFLOP/s, float16: 1307.4 TFLOP/s, float8: 2614.9 TFLOP/s, float64: 163.4 TFLOP/s}
memory_bandwidth: 5300 GB/s
copy_bandwidth: {to_host: 64 GB/s, to_device: 64 GB/s}
)"},
    {"rtx4090", R"(# NVIDIA GeForce RTX 4090 24GB (Ada architecture whitepaper), dense, float32 accumulation.
name: rtx4090
capacity: 24 GiB
flops: {float32: 82.6 TFLOP/s, bfloat16: 165.2 TFLOP/s, float16: 165.2 TFLOP/s, float8: 330.3 TFLOP/s}
memory_bandwidth: 1008 GB/s
copy_bandwidth: {to_host: 32 GB/s, to_device: 32 GB/s}
workspaces: {cublas: 8519680 B}
)"},
    {"v100-32gb", R"(# NVIDIA V100 32GB SXM2 (datasheet 2020), dense.
name: v100-32gb
capacity: 32 GiB
flops: {float32: 15.7 TFLOP/s, float16: 125 TFLOP/s, float64: 7.8 TFLOP/s}
memory_bandwidth: 900 GB/s
copy_bandwidth: {to_host: 16 GB/s, to_device: 16 GB/s}
link_bandwidth: 150 GB/s
workspaces: {cublas: 8519680 B}
)"},
}};

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> out;
  for (const Builtin& device : devices) out.emplace_back(device.name);
  return out;
}

std::string_view builtin_device(std::string_view name) {
  const auto found = std::ranges::find(devices, name, &Builtin::name);
  return found == devices.end() ? "" : found->yaml;
}

}  // namespace tidemark
