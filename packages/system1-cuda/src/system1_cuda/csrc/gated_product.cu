// GeGLU and SwiGLU products: an activation of the first half of a row times the second half.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kThreads = 256;

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

template <typename T, bool kIsGelu>
__global__ void __launch_bounds__(kThreads) gated_product(const GatedProduct args, unsigned total) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= total) return;
  const unsigned vectors = args.width / kVector;
  const unsigned row = index / vectors;
  const unsigned column = index % vectors * kVector;
  const T* source = static_cast<const T*>(args.x) + 2 * static_cast<int64_t>(row) * args.width;
  float activated[kVector];
  float gate[kVector];
  load(source + column, activated);
  load(source + args.width + column, gate);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    activated[i] = kIsGelu ? gelu(activated[i]) : silu(activated[i]);
  }
  if constexpr (!kIsGelu) round_all<T>(activated);
#pragma unroll
  for (int i = 0; i < kVector; ++i) activated[i] *= gate[i];
  store(static_cast<T*>(args.out) + static_cast<int64_t>(row) * args.width + column, activated);
}

template <typename T>
void launch(const GatedProduct& args, cudaStream_t stream) {
  const auto total = static_cast<unsigned>(args.rows * (args.width / kVector));
  const dim3 grid((total + kThreads - 1) / kThreads);
  if (args.is_gelu) {
    gated_product<T, true><<<grid, kThreads, 0, stream>>>(args, total);
  } else {
    gated_product<T, false><<<grid, kThreads, 0, stream>>>(args, total);
  }
}

}  // namespace

cudaError_t launch_gated_product(const GatedProduct& args, cudaStream_t stream) {
  if (args.rows == 0 || args.width == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: launch<float>(args, stream); break;
    case Dtype::f16: launch<__half>(args, stream); break;
    case Dtype::bf16: launch<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
