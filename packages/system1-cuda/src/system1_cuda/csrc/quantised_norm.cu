// The norms of row_norm.cu and gated_rms_norm.cu that end in FP8: one block a row, eight values a
// thread. They round to bfloat16 where those do, so the FP8 values are those of their results.

#include "quantise.cuh"

namespace system1 {
namespace {

template <bool kHasResidual>
__global__ void __launch_bounds__(kMaxRowThreads) rms_norm_quantised(const RmsNormQuantised args) {
  __shared__ float squares[kMaxRowWarps];
  __shared__ float largest[kMaxRowWarps];
  const int64_t row = blockIdx.x;
  const int column = threadIdx.x * kVector;
  const int64_t place = row * args.width + column;
  const bool is_inside = column < args.width;
  const auto at = [](const void* data, int64_t index) {
    return static_cast<const __nv_bfloat16*>(data) + index;
  };

  float x[kVector] = {};
  float weight[kVector] = {};
  if (is_inside) {
    load(at(args.x, place), x);
    // Before the store below, which the compiler moves no load across.
    load(at(args.weight, column), weight);
    if constexpr (kHasResidual) {
      float residual[kVector];
      load(at(args.residual, place), residual);
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[i] = residual[i] + x[i];
      round_all<__nv_bfloat16>(x);
      store(static_cast<__nv_bfloat16*>(args.summed) + place, x);
    }
  }
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) square += x[i] * x[i];
  const float scale = rsqrtf(block_sum(square, squares) / args.width + args.eps);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = x[i] * scale * (args.offset + weight[i]);
  const Held<__nv_bfloat16> held[1] = {rounded_to_bf16(x)};
  if (is_inside && args.normed != nullptr) {
    auto* normed = static_cast<__nv_bfloat16*>(args.normed) + place;
    *reinterpret_cast<Held<__nv_bfloat16>*>(normed) = held[0];
  }
  write_quantised(held, args.out, row, args.width, largest);
}

template <int kLanes>
__global__ void __launch_bounds__(kMaxRowThreads)
    gated_rms_norm_quantised(const GatedRmsNormQuantised args) {
  __shared__ float largest[kMaxRowWarps];
  const int64_t token = blockIdx.x;
  const int head = threadIdx.x / kLanes;
  const int column = threadIdx.x % kLanes * kVector;
  const bool is_inside = head < args.heads;
  const auto place = [=](const Heads& heads) {
    return static_cast<const __nv_bfloat16*>(heads.data) + token * heads.token_stride +
           head * heads.head_stride + column;
  };

  float x[kVector] = {};
  float gate[kVector] = {};
  float weight[kVector] = {};
  if (is_inside) {
    load(place(args.x), x);
    load(place(args.gate), gate);
    load(static_cast<const __nv_bfloat16*>(args.weight) + column, weight);
  }
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) square += x[i] * x[i];
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    square += __shfl_xor_sync(0xffffffffu, square, step);
  }
  const float scale = rsqrtf(square / (kLanes * kVector) + args.eps);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] *= scale;
  round_all<__nv_bfloat16>(x);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] *= weight[i];
  round_all<__nv_bfloat16>(x);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] *= silu(gate[i]);
  const Held<__nv_bfloat16> held[1] = {rounded_to_bf16(x)};
  write_quantised(held, args.out, token, args.heads * kLanes * kVector, largest);
}

int threads_of(int width) { return (width / kVector + kWarp - 1) / kWarp * kWarp; }

}  // namespace

cudaError_t launch_rms_norm_quantised(const RmsNormQuantised& args, cudaStream_t stream) {
  if (args.rows * args.width == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(args.rows));
  if (args.residual != nullptr) {
    rms_norm_quantised<true><<<grid, threads_of(args.width), 0, stream>>>(args);
  } else {
    rms_norm_quantised<false><<<grid, threads_of(args.width), 0, stream>>>(args);
  }
  return cudaGetLastError();
}

cudaError_t launch_gated_rms_norm_quantised(const GatedRmsNormQuantised& args,
                                            cudaStream_t stream) {
  if (args.tokens * args.heads == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(args.tokens));
  const int threads = threads_of(args.heads * args.width);
  switch (args.width) {
    case 64: gated_rms_norm_quantised<8><<<grid, threads, 0, stream>>>(args); break;
    case 128: gated_rms_norm_quantised<16><<<grid, threads, 0, stream>>>(args); break;
    case 256: gated_rms_norm_quantised<32><<<grid, threads, 0, stream>>>(args); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
