// How a block turns the row that it holds into FP8 with one scale.
#pragma once

#include <cuda_fp8.h>

#include "vectors.cuh"

namespace system1 {

constexpr float kFp8Max = 448.0f;
// Keeps an all-zero row from dividing by zero, as the reference does.
constexpr float kMinScale = 1e-12f;
constexpr int kMaxRowThreads = 1024;
constexpr int kMaxRowWarps = kMaxRowThreads / kWarp;

// A thread's eight values of a row in the dtype they are rounded to: half of float's registers.
template <typename T>
using Held = Piece<T, kVector>;

// Two at a time, as round_all.
__device__ inline Held<__nv_bfloat16> rounded_to_bf16(const float (&x)[kVector]) {
  Held<__nv_bfloat16> held;
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x[i], x[i + 1]);
    held.values[i] = pair.x, held.values[i + 1] = pair.y;
  }
  return held;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

// As block_sum, for values of at least 0.
__device__ inline float block_max(float x, float* shared) {
  x = warp_max(x);
  const int warps = blockDim.x / kWarp;
  if (warps == 1) return x;
  const int lane = threadIdx.x % kWarp;
  if (lane == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_max(lane < warps ? shared[lane] : 0.0f);
}

__device__ inline void store_fp8(uint8_t* target, const float (&x)[kVector], float scale,
                                 float inverse) {
  Piece<__nv_fp8x2_storage_t, kVector / 2> piece;
  // A division's bits without its cost: the quotient's error, taken once, rounds it right.
  const auto divided = [=](float value) {
    const float quotient = value * inverse;
    return fmaf(fmaf(-quotient, scale, value), inverse, quotient);
  };
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    const float2 pair = make_float2(divided(x[i]), divided(x[i + 1]));
    piece.values[i / 2] = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
  }
  *reinterpret_cast<decltype(piece)*>(target) = piece;
}

// Write one row [width] of the block in FP8, and its scale. Thread t holds eight values from column
// 8 * (t + piece * threads) on, zeros beyond the width. `shared` is as in block_max.
template <typename T, int pieces>
__device__ void write_quantised(const Held<T> (&held)[pieces], const Fp8Rows& out, int64_t row,
                                int width, float* shared) {
  float x[kVector];
  float largest = 0.0f;
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    load(held[piece].values, x);
#pragma unroll
    for (int i = 0; i < kVector; ++i) largest = fmaxf(largest, fabsf(x[i]));
  }
  const float scale = fmaxf(block_max(largest, shared) / kFp8Max, kMinScale);
  if (threadIdx.x == 0) out.scales[row] = scale;
  const float inverse = __frcp_rn(scale);
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    const int column = (piece * blockDim.x + threadIdx.x) * kVector;
    if (column >= width) continue;
    load(held[piece].values, x);
    store_fp8(out.values + row * width + column, x, scale, inverse);
  }
}

}  // namespace system1
