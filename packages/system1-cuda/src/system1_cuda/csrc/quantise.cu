// Rows in FP8 with a scale each, and SwiGLU's product so: one block a row, held in registers, so
// that it is read once.

#include "quantise.cuh"

namespace system1 {
namespace {

// Rows of up to 1,024 * 4 * 8 values.
constexpr int kMaxPieces = 4;

template <typename T, int pieces>
__global__ void __launch_bounds__(kMaxRowThreads) quantise_rows(const QuantiseRows args) {
  __shared__ float largest[kMaxRowWarps];
  const int64_t row = blockIdx.x;
  const T* source = static_cast<const T*>(args.x) + row * args.x_stride;
  Held<T> held[pieces] = {};
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    const int column = (piece * blockDim.x + threadIdx.x) * kVector;
    if (column < args.width) held[piece] = *reinterpret_cast<const Held<T>*>(source + column);
  }
  write_quantised(held, args.out, row, args.width, largest);
}

template <int pieces>
__global__ void __launch_bounds__(kMaxRowThreads) silu_mul_quantised(const SiluMulQuantised args) {
  __shared__ float largest[kMaxRowWarps];
  const int64_t row = blockIdx.x;
  const auto* source = static_cast<const __nv_bfloat16*>(args.gate_up) + row * 2 * args.width;
  // All of the row is asked for before any of it is waited for.
  Held<__nv_bfloat16> gates[pieces] = {};
  Held<__nv_bfloat16> ups[pieces] = {};
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    const int column = (piece * blockDim.x + threadIdx.x) * kVector;
    if (column >= args.width) continue;
    gates[piece] = *reinterpret_cast<const Held<__nv_bfloat16>*>(source + column);
    ups[piece] = *reinterpret_cast<const Held<__nv_bfloat16>*>(source + args.width + column);
  }
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    float gate[kVector];
    float up[kVector];
    load(gates[piece].values, gate);
    load(ups[piece].values, up);
#pragma unroll
    for (int i = 0; i < kVector; ++i) gate[i] = silu(gate[i]);
    // The rounding points are the reference's.
    round_all<__nv_bfloat16>(gate);
#pragma unroll
    for (int i = 0; i < kVector; ++i) gate[i] *= up[i];
    gates[piece] = rounded_to_bf16(gate);
  }
  write_quantised(gates, args.out, row, args.width, largest);
}

// Calls launch<pieces>(threads) with as few pieces as the row's width allows.
template <typename Launch>
void launch_pieces(int width, const Launch& launch) {
  const int vectors = width / kVector;
  const auto threads = [=](int pieces) {
    return (vectors + pieces * kWarp - 1) / (pieces * kWarp) * kWarp;
  };
  if (vectors <= kMaxRowThreads) {
    launch.template operator()<1>(threads(1));
  } else if (vectors <= 2 * kMaxRowThreads) {
    launch.template operator()<2>(threads(2));
  } else {
    launch.template operator()<kMaxPieces>(threads(kMaxPieces));
  }
}

template <typename T>
void launch_rows(const QuantiseRows& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.rows));
  launch_pieces(args.width, [&]<int pieces>(int threads) {
    quantise_rows<T, pieces><<<grid, threads, 0, stream>>>(args);
  });
}

}  // namespace

cudaError_t launch_quantise_rows(const QuantiseRows& args, cudaStream_t stream) {
  if (args.rows * args.width == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: launch_rows<float>(args, stream); break;
    case Dtype::f16: launch_rows<__half>(args, stream); break;
    case Dtype::bf16: launch_rows<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

cudaError_t launch_silu_mul_quantised(const SiluMulQuantised& args, cudaStream_t stream) {
  if (args.rows * args.width == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(args.rows));
  launch_pieces(args.width, [&]<int pieces>(int threads) {
    silu_mul_quantised<pieces><<<grid, threads, 0, stream>>>(args);
  });
  return cudaGetLastError();
}

}  // namespace system1
