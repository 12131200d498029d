// Rows in FP8 with a scale each: one block a row, held in registers, so that it is read once.

#include "quantise.cuh"

namespace system1 {
namespace {

// Values a thread at most: rows of up to 1,024 * 4 * 8 of them.
constexpr int kMaxPieces = 4;
constexpr int kMaxThreads = 1024;

template <typename T, int pieces>
__global__ void __launch_bounds__(kMaxThreads) quantise_rows(const QuantiseRows args) {
  __shared__ float largest[kMaxRowWarps];
  const int64_t row = blockIdx.x;
  const int width = args.width;
  const T* source = static_cast<const T*>(args.x) + row * args.x_stride;
  float x[pieces][kVector] = {};
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    const int column = (piece * blockDim.x + threadIdx.x) * kVector;
    if (column >= width) continue;
    load(source + column, x[piece]);
  }
  const float scale = row_scale(x, largest);
  if (threadIdx.x == 0) args.scales[row] = scale;
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    const int column = (piece * blockDim.x + threadIdx.x) * kVector;
    if (column < width) store_fp8(args.values + row * width + column, x[piece], scale);
  }
}

int warps_of(int vectors) { return (vectors + kWarp - 1) / kWarp * kWarp; }

template <typename T>
void launch(const QuantiseRows& args, cudaStream_t stream) {
  const int vectors = args.width / kVector;
  const dim3 grid(static_cast<unsigned>(args.rows));
  if (vectors <= kMaxThreads) {
    quantise_rows<T, 1><<<grid, warps_of(vectors), 0, stream>>>(args);
  } else if (vectors <= 2 * kMaxThreads) {
    quantise_rows<T, 2><<<grid, warps_of((vectors + 1) / 2), 0, stream>>>(args);
  } else {
    quantise_rows<T, kMaxPieces>
        <<<grid, warps_of((vectors + kMaxPieces - 1) / kMaxPieces), 0, stream>>>(args);
  }
}

}  // namespace

cudaError_t launch_quantise_rows(const QuantiseRows& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: launch<float>(args, stream); break;
    case Dtype::f16: launch<__half>(args, stream); break;
    case Dtype::bf16: launch<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
