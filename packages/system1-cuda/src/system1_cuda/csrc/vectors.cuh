// Eight values at a time between memory and float registers, and sums over threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "launch.h"

namespace system1 {

constexpr int kVector = 8;
constexpr int kWarp = 32;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) { return x; }
template <>
__device__ inline __half from_float<__half>(float x) { return __float2half_rn(x); }
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <typename T>
__device__ float rounded(float x) {
  return to_float(from_float<T>(x));
}

// Two at a time in 16 bits: a conversion of a pair costs what one of a single value does.
template <typename T, int count>
__device__ void round_all(float (&values)[count]) {
  static_assert(count % 2 == 0);
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      if constexpr (std::is_same_v<T, __half>) {
        const float2 pair = __half22float2(__floats2half2_rn(values[i], values[i + 1]));
        values[i] = pair.x, values[i + 1] = pair.y;
      } else {
        const float2 pair = __bfloat1622float2(__floats2bfloat162_rn(values[i], values[i + 1]));
        values[i] = pair.x, values[i + 1] = pair.y;
      }
    }
  }
}

// `count` values as one piece of memory, so that the compiler moves 16 bytes an instruction.
template <typename T, int count>
struct alignas(sizeof(T) * count > 16 ? 16 : sizeof(T) * count) Piece {
  T values[count];
};

template <int count, typename T>
__device__ void load(const T* source, float (&values)[count]) {
  const auto piece = *reinterpret_cast<const Piece<T, count>*>(source);
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = to_float(piece.values[i]);
}

template <int count, typename T>
__device__ void store(T* target, const float (&values)[count]) {
  Piece<T, count> piece;
#pragma unroll
  for (int i = 0; i < count; ++i) piece.values[i] = from_float<T>(values[i]);
  *reinterpret_cast<Piece<T, count>*>(target) = piece;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// The sum over the block in every thread. `shared` holds one float for each warp and is used by
// this call alone: a second sum needs its own.
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const int warps = blockDim.x / kWarp;
  if (warps == 1) return x;
  const int lane = threadIdx.x % kWarp;
  if (lane == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

// Two units off in the last place, far under what the results are rounded to. Where the power
// overflows its inverse is 0, as it should be.
__device__ inline float silu(float x) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-1.4426950408889634f * x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return x * inverse;
}

}  // namespace system1
