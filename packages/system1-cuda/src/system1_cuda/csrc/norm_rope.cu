// Zero-centred RMSNorm of each head, then rotary positions on its first dimensions.
//
// Eight values a lane, width / 8 lanes a head; a lane and the one that holds the other half of its
// pairs exchange values by shuffles.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kThreads = 128;

template <typename T, typename W, int kLanes>
__global__ void __launch_bounds__(kThreads) norm_rope(const NormRope args) {
  constexpr int kWidth = kLanes * kVector;
  const unsigned row = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const bool is_inside = row < args.tokens * args.heads;
  const int64_t token = row / args.heads;
  const int64_t head = row % args.heads;
  const int lane = threadIdx.x % kLanes;
  const int column = lane * kVector;
  const int turned_lanes = args.turned / kVector;
  const bool is_turned = lane < turned_lanes;

  float x[kVector] = {};
  float weight[kVector] = {};
  float cos[kVector] = {};
  float sin[kVector] = {};
  if (is_inside) {
    load(static_cast<const T*>(args.x.data) + token * args.x.token_stride +
             head * args.x.head_stride + column,
         x);
    load(static_cast<const W*>(args.weight) + column, weight);
    if (is_turned) {
      load(static_cast<const T*>(args.cos) + token * args.turned + column, cos);
      load(static_cast<const T*>(args.sin) + token * args.turned + column, sin);
    }
  }
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) square += x[i] * x[i];
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    square += __shfl_xor_sync(0xffffffffu, square, step);
  }
  const float scale = rsqrtf(square / kWidth + args.eps);
  const bool is_first = lane < turned_lanes / 2;
  const int partner = is_first ? lane + turned_lanes / 2 : lane - turned_lanes / 2;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    x[i] = rounded<T>(x[i] * scale * (1.0f + weight[i]));
    const float other = __shfl_sync(0xffffffffu, x[i], is_turned ? partner : lane, kLanes);
    // Both products and their sum round, as the reference's do.
    const float across = rounded<T>((is_first ? -other : other) * sin[i]);
    if (is_turned) x[i] = rounded<T>(x[i] * cos[i]) + across;
  }
  if (!is_inside) return;
  store(static_cast<T*>(args.out) + static_cast<int64_t>(row) * kWidth + column, x);
}

template <typename T, typename W, int kLanes>
void launch_lanes(const NormRope& args, cudaStream_t stream) {
  constexpr int kRows = kThreads / kLanes;
  const dim3 grid(static_cast<unsigned>((args.tokens * args.heads + kRows - 1) / kRows));
  norm_rope<T, W, kLanes><<<grid, kThreads, 0, stream>>>(args);
}

template <typename T, typename W>
void launch(const NormRope& args, cudaStream_t stream) {
  switch (args.width) {
    case 64: launch_lanes<T, W, 8>(args, stream); break;
    case 128: launch_lanes<T, W, 16>(args, stream); break;
    case 256: launch_lanes<T, W, 32>(args, stream); break;
  }
}

template <typename T>
void launch_narrow(const NormRope& args, cudaStream_t stream) {
  if (args.weight_dtype == Dtype::f32) {
    launch<T, float>(args, stream);
  } else {
    launch<T, T>(args, stream);
  }
}

}  // namespace

cudaError_t launch_norm_rope(const NormRope& args, cudaStream_t stream) {
  if (args.tokens * args.heads == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: launch<float, float>(args, stream); break;
    case Dtype::f16: launch_narrow<__half>(args, stream); break;
    case Dtype::bf16: launch_narrow<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
