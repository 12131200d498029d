// From the projections of a Gated DeltaNet layer to what its recurrence takes, in one pass:
// convolution over the tree, SiLU, split into q, k and v, unit length of q and k, gates.
//
// Eight channels a lane, width / 8 lanes a head. A group of lanes stays on one head for a run of tokens,
// keeps the head's taps in registers and slides over the rows: it asks for all of them before it works
// on the first, because each wait for memory is longer than all the arithmetic. Only where a token
// does not follow its neighbour in memory (a segment begins) are the rows before it read by index.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kThreads = 128;
// Tokens a group of lanes works on: short runs keep the device busy on short batches.
constexpr int kShortRun = 2;
constexpr int kLongRun = 8;
constexpr int kLongTokens = 192;
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

template <typename T>
using Row = Piece<T, kVector>;

template <typename T>
__device__ Row<T> read_row(const T* qkv, int64_t row, int64_t stride) {
  if (row < 0) return {};
  return *reinterpret_cast<const Row<T>*>(qkv + row * stride);
}

template <typename T>
__device__ void widen(float (&values)[kVector], const Row<T>& row) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) values[i] = to_float(row.values[i]);
}

template <typename T, int kLanes, int kTokens>
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

  // Rows 3, 2 and 1 places back.
  Row<T> before[kBack];
#pragma unroll
  for (int tap = 0; tap < kBack; ++tap) {
    before[tap] = read_row(qkv, args.history[first * kBack + kBack - 1 - tap], args.qkv_stride);
  }
  Row<T> rows[kTokens];
  bool follows[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    const int64_t token = first + i;
    const bool is_token = token < args.tokens;
    rows[i] = read_row(qkv, is_token ? token : -1, args.qkv_stride);
    follows[i] = i == 0 || !is_token || args.history[token * kBack] == token - 1;
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

  // window[kBack] is the token's own row.
  float window[kTaps][kVector];
#pragma unroll
  for (int tap = 0; tap < kBack; ++tap) widen(window[tap], before[tap]);
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t token = first + t;
    if (token >= args.tokens) break;
    if (!follows[t]) {
#pragma unroll
      for (int tap = 0; tap < kBack; ++tap) {
        const int64_t row = args.history[token * kBack + kBack - 1 - tap];
        widen(window[tap], read_row(qkv, row, args.qkv_stride));
      }
    }
    widen(window[kBack], rows[t]);
    float x[kVector] = {};
#pragma unroll
    for (int tap = kBack; tap >= 0; --tap) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[i] += window[tap][i] * taps[tap][i];
    }
#pragma unroll
    for (int tap = 0; tap < kBack; ++tap) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) window[tap][i] = window[tap + 1][i];
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
    T* unit = static_cast<T*>(is_query ? args.q : args.k);
    store(unit + (token * args.key_heads + head) * kWidth + lane * kVector, x);
  }
}

template <typename T, int kLanes, int kTokens>
void launch_run(const DeltaInputs& args, cudaStream_t stream) {
  constexpr int kHeads = kThreads / kLanes;
  const int heads = 2 * args.key_heads + args.value_heads;
  const dim3 grid((heads + kHeads - 1) / kHeads,
                  static_cast<unsigned>((args.tokens + kTokens - 1) / kTokens));
  delta_inputs<T, kLanes, kTokens><<<grid, kThreads, 0, stream>>>(args);
}

template <typename T, int kLanes>
void launch_lanes(const DeltaInputs& args, cudaStream_t stream) {
  if (args.tokens < kLongTokens) {
    launch_run<T, kLanes, kShortRun>(args, stream);
  } else {
    launch_run<T, kLanes, kLongRun>(args, stream);
  }
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
