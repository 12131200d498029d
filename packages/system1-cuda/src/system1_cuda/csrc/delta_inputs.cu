// From the projections of a Gated DeltaNet layer to what its recurrence takes, in one pass:
// convolution over the tree, SiLU, split into q, k and v, unit length of q and k, gates.
//
// Eight channels a lane, width / 8 lanes a head. A group of lanes stays on one head for several
// tokens and keeps the head's taps in registers. It asks for every row of every token before it works
// on the first, because each wait for memory is longer than all the arithmetic; the rows that
// neighbouring tokens share come from the cache.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kThreads = 128;
constexpr int kTokens = 2;  // tokens a group of lanes works on
constexpr int kBack = 3;    // tokens the convolution looks back
constexpr int kTaps = kBack + 1;
constexpr float kLengthEps = 1e-6f;

__device__ float read(const void* values, Dtype dtype, int64_t index) {
  switch (dtype) {
    case Dtype::f16: return to_float(static_cast<const __half*>(values)[index]);
    case Dtype::bf16: return to_float(static_cast<const __nv_bfloat16*>(values)[index]);
    default: return static_cast<const float*>(values)[index];
  }
}

__device__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

template <typename T>
__device__ void write_gates(const DeltaInputs& args, int64_t token, int head) {
  const int64_t place = token * args.value_heads + head;
  const float a = to_float(static_cast<const T*>(args.a)[token * args.a_stride + head]);
  const float b = to_float(static_cast<const T*>(args.b)[token * args.b_stride + head]);
  const float rate = expf(read(args.a_log, args.a_log_dtype, head));
  args.g[place] = -rate * softplus(a + read(args.dt_bias, args.dt_bias_dtype, head));
  static_cast<T*>(args.beta)[place] = from_float<T>(1.0f / (1.0f + expf(-b)));
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads) delta_inputs(const DeltaInputs args) {
  constexpr int kWidth = kLanes * kVector;
  const int heads = 2 * args.key_heads + args.value_heads;
  const int lane = threadIdx.x % kLanes;
  // The lanes of a group take part in shuffles even where they have no head.
  const int slot = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const bool is_inside = slot < heads;
  const int channel = (is_inside ? slot : 0) * kWidth + lane * kVector;
  const T* qkv = static_cast<const T*>(args.qkv) + channel;

  const int64_t first = static_cast<int64_t>(blockIdx.y) * kTokens;
  // Row `kBack` is the token's own, the others lie 3, 2 and 1 places back.
  Piece<T, kVector> rows[kTokens][kTaps] = {};
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    const int64_t token = first + i;
    if (token >= args.tokens) break;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int64_t row = tap == kBack ? token : args.history[token * kBack + kBack - 1 - tap];
      if (row < 0) continue;
      rows[i][tap] = *reinterpret_cast<const Piece<T, kVector>*>(qkv + row * args.qkv_stride);
    }
  }
  float taps[kTaps][kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    float channel_taps[kTaps];
    load(static_cast<const T*>(args.conv_weight) + (channel + i) * kTaps, channel_taps);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) taps[tap][i] = channel_taps[tap];
  }
  if (is_inside && slot >= 2 * args.key_heads && lane < kTokens && first + lane < args.tokens) {
    write_gates<T>(args, first + lane, slot - 2 * args.key_heads);
  }

#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t token = first + t;
    if (token >= args.tokens) break;
    float x[kVector] = {};
#pragma unroll
    for (int tap = kBack; tap >= 0; --tap) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[i] += to_float(rows[t][tap].values[i]) * taps[tap][i];
    }
    float square = 0.0f;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      // The convolution rounds, then its SiLU.
      x[i] = rounded<T>(silu(rounded<T>(x[i])));
      square += x[i] * x[i];
    }
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      square += __shfl_xor_sync(0xffffffffu, square, step);
    }
    if (!is_inside) continue;
    if (slot >= 2 * args.key_heads) {
      const int head = slot - 2 * args.key_heads;
      store(static_cast<T*>(args.v) + (token * args.value_heads + head) * kWidth + lane * kVector,
            x);
      continue;
    }
    const bool is_query = slot < args.key_heads;
    const int head = is_query ? slot : slot - args.key_heads;
    const float scale =
        rsqrtf(square + kLengthEps) * (is_query ? rsqrtf(static_cast<float>(kWidth)) : 1.0f);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] *= scale;
    store((is_query ? args.q : args.k) + (token * args.key_heads + head) * kWidth + lane * kVector,
          x);
  }
}

template <typename T, int kLanes>
void launch_lanes(const DeltaInputs& args, cudaStream_t stream) {
  constexpr int kHeads = kThreads / kLanes;
  const int heads = 2 * args.key_heads + args.value_heads;
  const dim3 grid((heads + kHeads - 1) / kHeads,
                  static_cast<unsigned>((args.tokens + kTokens - 1) / kTokens));
  delta_inputs<T, kLanes><<<grid, kThreads, 0, stream>>>(args);
}

template <typename T>
void launch(const DeltaInputs& args, cudaStream_t stream) {
  switch (args.width) {
    case 64: launch_lanes<T, 8>(args, stream); break;
    case 128: launch_lanes<T, 16>(args, stream); break;
  }
}

}  // namespace

cudaError_t launch_delta_inputs(const DeltaInputs& args, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: launch<float>(args, stream); break;
    case Dtype::f16: launch<__half>(args, stream); break;
    case Dtype::bf16: launch<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
