// From the projections of a Gated DeltaNet layer to what its recurrence takes, in one pass:
// convolution over the tree, SiLU, split into q, k and v, unit length of q and k, gates.
//
// Eight channels a lane, width / 8 lanes a head. A group of lanes stays on one head for a run of tokens,
// keeps the head's taps in registers and slides over the rows: it asks for each a few tokens ahead,
// because a wait for memory is longer than all the arithmetic. Only where a token does not follow
// its neighbour in memory (a segment begins) are the rows before it read by index.

#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kThreads = 128;
// Tokens a group of lanes works on: short runs keep the device busy on short batches.
constexpr int kShortRun = 2;
constexpr int kMiddleRun = 8;
constexpr int kMiddleTokens = 192;
constexpr int kLongRun = 16;
constexpr int kLongTokens = 1024;
constexpr int kMostAhead = 4;  // rows that a lane waits for at a time
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

// One token's channels; then the window moves on.
__device__ void convolve(float (&x)[kVector], float (&window)[kTaps][kVector],
                         const float (&taps)[kTaps][kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = window[kBack][i] * taps[kBack][i];
#pragma unroll
  for (int tap = kBack - 1; tap >= 0; --tap) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] += window[tap][i] * taps[tap][i];
  }
#pragma unroll
  for (int tap = 0; tap < kBack; ++tap) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) window[tap][i] = window[tap + 1][i];
  }
}

__device__ float sum_of_squares(const float (&x)[kVector]) {
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) square += x[i] * x[i];
  return square;
}

template <int kLanes>
__device__ float group_sum(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

template <typename T, int kLanes, int kTokens>
__global__ void __launch_bounds__(kThreads) delta_inputs(const DeltaInputs args) {
  constexpr int kWidth = kLanes * kVector;
  const int heads = 2 * args.key_heads + args.value_heads;
  const int lane = threadIdx.x % kLanes;
  // The lanes of a group take part in shuffles even where they have no head.
  const int slot = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const bool is_inside = slot < heads;
  const bool is_value = slot >= 2 * args.key_heads;
  const bool is_query = slot < args.key_heads;
  const int channel = (is_inside ? slot : 0) * kWidth + lane * kVector;
  const T* qkv = static_cast<const T*>(args.qkv) + channel;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kTokens;

  // Rows 3, 2 and 1 places back.
  Row<T> before[kBack];
#pragma unroll
  for (int tap = 0; tap < kBack; ++tap) {
    before[tap] = read_row(qkv, args.history[first * kBack + kBack - 1 - tap], args.qkv_stride);
  }
  constexpr int kAhead = kTokens < kMostAhead ? kTokens : kMostAhead;
  Row<T> ahead[kAhead];
  bool follows[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int64_t token = first + i;
    const bool is_token = token < args.tokens;
    ahead[i] = read_row(qkv, is_token ? token : -1, args.qkv_stride);
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
  if (is_inside && is_value) {
    for (int i = lane; i < kTokens && first + i < args.tokens; i += kLanes) {
      write_gates<T>(args, first + i, slot - 2 * args.key_heads);
    }
  }

  const int own_heads = is_value ? args.value_heads : args.key_heads;
  const int head = is_value ? slot - 2 * args.key_heads : (is_query ? slot : slot - args.key_heads);
  const int64_t step = static_cast<int64_t>(own_heads) * kWidth;
  T* out = static_cast<T*>(is_value ? args.v : (is_query ? args.q : args.k)) + first * step +
           head * kWidth + lane * kVector;
  const float length = is_query ? rsqrtf(static_cast<float>(kWidth)) : 1.0f;

  // window[kBack] is the token's own row.
  float window[kTaps][kVector];
#pragma unroll
  for (int tap = 0; tap < kBack; ++tap) widen(window[tap], before[tap]);
  for (int begin = 0; begin < kTokens; begin += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t token = first + begin + i;
      if (token >= args.tokens) return;
      if (!follows[i]) {
#pragma unroll
        for (int tap = 0; tap < kBack; ++tap) {
          const int64_t row = args.history[token * kBack + kBack - 1 - tap];
          widen(window[tap], read_row(qkv, row, args.qkv_stride));
        }
      }
      widen(window[kBack], ahead[i]);
      const int64_t next = token + kAhead;
      if (begin + kAhead < kTokens && next < args.tokens) {
        ahead[i] = read_row(qkv, next, args.qkv_stride);
        follows[i] = args.history[next * kBack] == next - 1;
      }
      float x[kVector];
      convolve(x, window, taps);
      // The convolution rounds, then its SiLU.
      round_all<T>(x);
#pragma unroll
      for (int j = 0; j < kVector; ++j) x[j] = silu(x[j]);
      round_all<T>(x);
      const float square = group_sum<kLanes>(sum_of_squares(x));
      const float scale = is_value ? 1.0f : rsqrtf(square + kLengthEps) * length;
#pragma unroll
      for (int j = 0; j < kVector; ++j) x[j] *= scale;
      if (is_inside) store(out, x);
      out += step;
    }
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
  if (args.tokens < kMiddleTokens) {
    launch_run<T, kLanes, kShortRun>(args, stream);
  } else if (args.tokens < kLongTokens) {
    launch_run<T, kLanes, kMiddleRun>(args, stream);
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
