// LayerNorm and RMSNorm of rows, with the residual addition before them.
//
// One block a row, eight values a thread, held in registers between the passes: x and the residual
// are read once, the sum and the normed row written once.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kMaxWarps = 32;

template <typename T, typename R, typename W, bool kIsRms, bool kHasResidual>
__global__ void __launch_bounds__(1024) row_norm(const RowNorm args) {
  __shared__ float sums[kMaxWarps];
  __shared__ float squares[kMaxWarps];
  const int width = args.width;
  const int column = threadIdx.x * kVector;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * width + column;
  const bool is_inside = column < width;

  float x[kVector] = {};
  float weight[kVector] = {};
  float bias[kVector] = {};
  if (is_inside) {
    load(static_cast<const T*>(args.x) + place, x);
    // Before the store below: no later read may pass it.
    load(static_cast<const W*>(args.weight) + column, weight);
    if (!kIsRms && args.bias != nullptr) load(static_cast<const W*>(args.bias) + column, bias);
    if constexpr (kHasResidual) {
      float residual[kVector];
      load(static_cast<const R*>(args.residual) + place, residual);
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[i] = rounded<R>(residual[i] + x[i]);
      store(static_cast<R*>(args.summed) + place, x);
    }
  }

  float mean = 0.0f;
  if constexpr (!kIsRms) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum += x[i];
    mean = block_sum(sum, sums) / width;
  }
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float centred = is_inside ? x[i] - mean : 0.0f;
    square += centred * centred;
  }
  const float scale = rsqrtf(block_sum(square, squares) / width + args.eps);
  if (!is_inside) return;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    x[i] = (x[i] - mean) * scale * (args.offset + weight[i]) + bias[i];
  }
  store(static_cast<T*>(args.normed) + place, x);
}

template <typename T, typename R, typename W>
void launch(const RowNorm& args, cudaStream_t stream) {
  const int vectors = args.width / kVector;
  const int threads = (vectors + kWarp - 1) / kWarp * kWarp;
  const dim3 grid(static_cast<unsigned>(args.rows));
  if (args.is_rms && args.residual != nullptr) {
    row_norm<T, R, W, true, true><<<grid, threads, 0, stream>>>(args);
  } else if (args.is_rms) {
    row_norm<T, R, W, true, false><<<grid, threads, 0, stream>>>(args);
  } else if (args.residual != nullptr) {
    row_norm<T, R, W, false, true><<<grid, threads, 0, stream>>>(args);
  } else {
    row_norm<T, R, W, false, false><<<grid, threads, 0, stream>>>(args);
  }
}

template <typename T>
void launch_narrow(const RowNorm& args, cudaStream_t stream) {
  const bool wide_residual = args.residual != nullptr && args.residual_dtype == Dtype::f32;
  const bool wide_weight = args.weight_dtype == Dtype::f32;
  if (wide_residual && wide_weight) {
    launch<T, float, float>(args, stream);
  } else if (wide_residual) {
    launch<T, float, T>(args, stream);
  } else if (wide_weight) {
    launch<T, T, float>(args, stream);
  } else {
    launch<T, T, T>(args, stream);
  }
}

}  // namespace

cudaError_t launch_row_norm(const RowNorm& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  switch (args.x_dtype) {
    case Dtype::f32: launch<float, float, float>(args, stream); break;
    case Dtype::f16: launch_narrow<__half>(args, stream); break;
    case Dtype::bf16: launch_narrow<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
