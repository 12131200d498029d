// How a block turns the row that it holds into FP8 with one scale.
#pragma once

#include <cuda_fp8.h>

#include "vectors.cuh"

namespace system1 {

constexpr float kFp8Max = 448.0f;
// Keeps an all-zero row from dividing by zero, as the reference does.
constexpr float kMinScale = 1e-12f;
constexpr int kMaxRowWarps = 32;

__device__ inline float block_max(float x, float* shared) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  const int lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  if (warps == 1) return x;
  if (lane == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = lane < warps ? shared[lane] : 0.0f;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

// The row's scale, from the values that each thread holds, rounded to T already.
template <int pieces>
__device__ float row_scale(const float (&x)[pieces][kVector], float* shared) {
  float largest = 0.0f;
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) largest = fmaxf(largest, fabsf(x[piece][i]));
  }
  return fmaxf(block_max(largest, shared) / kFp8Max, kMinScale);
}

__device__ inline void store_fp8(uint8_t* target, const float (&x)[kVector], float scale) {
  Piece<uint8_t, kVector> piece;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    piece.values[i] = __nv_cvt_float_to_fp8(x[i] / scale, __NV_SATFINITE, __NV_E4M3);
  }
  *reinterpret_cast<Piece<uint8_t, kVector>*>(target) = piece;
}

}  // namespace system1
