// RMSNorm of each head times SiLU of its gate: eight values a lane, width / 8 lanes a head.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kThreads = 128;

template <typename T, typename W, int kLanes>
__global__ void __launch_bounds__(kThreads) gated_rms_norm(const GatedRmsNorm args) {
  constexpr int kWidth = kLanes * kVector;
  const unsigned row = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const bool is_inside = row < args.tokens * args.heads;
  const unsigned token = row / args.heads;
  const unsigned head = row % args.heads;
  const int column = threadIdx.x % kLanes * kVector;

  float x[kVector] = {};
  float gate[kVector] = {};
  float weight[kVector] = {};
  const auto place = [=](const Heads& heads) {
    return static_cast<const T*>(heads.data) + token * heads.token_stride +
           head * heads.head_stride + column;
  };
  if (is_inside) {
    load(place(args.x), x);
    load(place(args.gate), gate);
    load(static_cast<const W*>(args.weight) + column, weight);
  }
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) square += x[i] * x[i];
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    square += __shfl_xor_sync(0xffffffffu, square, step);
  }
  if (!is_inside) return;
  const float scale = rsqrtf(square / kWidth + args.eps);
  // The rounding points are the reference's.
  round_all<T>(weight);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] *= scale;
  round_all<T>(x);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] *= weight[i];
  round_all<T>(x);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] *= silu(gate[i]);
  store(static_cast<T*>(args.out) + static_cast<int64_t>(row) * kWidth + column, x);
}

template <typename T, typename W, int kLanes>
void launch_lanes(const GatedRmsNorm& args, cudaStream_t stream) {
  constexpr int kRows = kThreads / kLanes;
  const dim3 grid(static_cast<unsigned>((args.tokens * args.heads + kRows - 1) / kRows));
  gated_rms_norm<T, W, kLanes><<<grid, kThreads, 0, stream>>>(args);
}

template <typename T, typename W>
void launch(const GatedRmsNorm& args, cudaStream_t stream) {
  switch (args.width) {
    case 64: launch_lanes<T, W, 8>(args, stream); break;
    case 128: launch_lanes<T, W, 16>(args, stream); break;
    case 256: launch_lanes<T, W, 32>(args, stream); break;
  }
}

template <typename T>
void launch_narrow(const GatedRmsNorm& args, cudaStream_t stream) {
  if (args.weight_dtype == Dtype::f32) {
    launch<T, float>(args, stream);
  } else {
    launch<T, T>(args, stream);
  }
}

}  // namespace

cudaError_t launch_gated_rms_norm(const GatedRmsNorm& args, cudaStream_t stream) {
  if (args.tokens * args.heads == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: launch<float, float>(args, stream); break;
    case Dtype::f16: launch_narrow<__half>(args, stream); break;
    case Dtype::bf16: launch_narrow<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
