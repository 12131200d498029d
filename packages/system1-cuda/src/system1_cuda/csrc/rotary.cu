// Rotary position embedding in half-split form, out of place, over strided heads.
//
// A thread turns eight pairs (dims j and j + half) or copies eight dims beyond both halves.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kThreads = 128;

template <typename T>
__global__ void __launch_bounds__(kThreads) rotary(const Rotary args, unsigned total) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= total) return;
  const unsigned turns = args.half / kVector;
  const unsigned pieces = (args.width - args.half) / kVector;
  const unsigned piece = index % pieces;
  const unsigned head = index / pieces % args.heads;
  const int64_t token = index / pieces / args.heads;
  const T* source = static_cast<const T*>(args.x.data) + token * args.x.token_stride +
                    head * args.x.head_stride;
  T* target = static_cast<T*>(args.out) + (token * args.heads + head) * args.width;

  float first[kVector];
  if (piece >= turns) {
    const int column = args.half + piece * kVector;
    load(source + column, first);
    store(target + column, first);
    return;
  }
  const int column = piece * kVector;
  float second[kVector];
  float cos[kVector];
  float sin[kVector];
  load(source + column, first);
  load(source + args.half + column, second);
  load(args.cos + token * args.half + column, cos);
  load(args.sin + token * args.half + column, sin);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float turned = first[i] * cos[i] - second[i] * sin[i];
    second[i] = second[i] * cos[i] + first[i] * sin[i];
    first[i] = turned;
  }
  store(target + column, first);
  store(target + args.half + column, second);
}

template <typename T>
void launch(const Rotary& args, cudaStream_t stream) {
  const auto total =
      static_cast<unsigned>(args.tokens * args.heads * ((args.width - args.half) / kVector));
  rotary<T><<<(total + kThreads - 1) / kThreads, kThreads, 0, stream>>>(args, total);
}

}  // namespace

cudaError_t launch_rotary(const Rotary& args, cudaStream_t stream) {
  if (args.tokens * args.heads == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: launch<float>(args, stream); break;
    case Dtype::f16: launch<__half>(args, stream); break;
    case Dtype::bf16: launch<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
