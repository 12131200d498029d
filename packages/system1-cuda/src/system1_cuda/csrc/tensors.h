// What the bindings ask of a tensor before a kernel reads its memory.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "launch.h"

// Only CUDA builds of torch have it, so the header declares it for them alone.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream);

namespace system1::tensors {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using torch::stable::accelerator::DeviceGuard;

inline cudaStream_t stream_of(const Tensor& tensor) {
  void* stream = nullptr;
  const auto error = aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream);
  STD_TORCH_CHECK(error == 0, "torch has no current CUDA stream");
  return static_cast<cudaStream_t>(stream);
}

inline void check_launch(cudaError_t error, const char* name) {
  STD_TORCH_CHECK(error == cudaSuccess, name, ": ", cudaGetErrorString(error));
}

inline Dtype dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return Dtype::f32;
    case ScalarType::Half: return Dtype::f16;
    case ScalarType::BFloat16: return Dtype::bf16;
    default: STD_TORCH_CHECK(false, "dtype must be float32, float16 or bfloat16"); return Dtype::f32;
  }
}

inline void check_rows(const Tensor& tensor, const char* name) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.is_contiguous(), name, " must be contiguous, on CUDA");
}

inline void check_width(const Tensor& tensor, int64_t width, const char* name) {
  check_rows(tensor, name);
  STD_TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == width, name, " must have ", width,
                  " values");
}

// A [T, H, K] tensor whose last dimension is contiguous and whose rows begin at 16 bytes.
inline Heads heads_of(const Tensor& tensor, const char* name) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.dim() == 3 && tensor.stride(2) == 1, name,
                  " must be [tokens, heads, width] on CUDA, contiguous in its last dimension");
  return {tensor.const_data_ptr(), tensor.stride(0), tensor.stride(1)};
}

inline Tensor empty_heads(const Tensor& like) {
  return torch::stable::new_empty(like, {like.size(0), like.size(1), like.size(2)});
}

}  // namespace system1::tensors
