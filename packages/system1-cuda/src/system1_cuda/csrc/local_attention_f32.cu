// Local attention in float32, without tensor cores: their float32 mode would round the inputs.
//
// A block takes 32 or 64 queries of one head and walks over 32 keys at a time. Eight neighbouring
// threads share two or four queries: four keys each while scoring, eight dims each while summing
// values. More queries a thread read each key and value from shared memory less often.

#include <cfloat>

#include "local_attention.cuh"
#include "vectors.cuh"

namespace system1 {
namespace {

constexpr int kWidth = 64;
constexpr int kKeys = 32;
constexpr int kThreads = 128;
constexpr int kGroup = 8;  // threads that share queries
constexpr int kPerThread = kKeys / kGroup;
// Rows padded by one 16-byte access, so that eight keys lie in different banks.
constexpr int kStride = kWidth + 4;
constexpr int kScoreStride = kKeys + 1;

template <int kCount>
__device__ void copy_rows(float* target, const float* head, int64_t stride, int first, int end) {
  for (int piece = threadIdx.x; piece < kCount * kWidth / 4; piece += kThreads) {
    const int row = piece / (kWidth / 4);
    const int column = piece % (kWidth / 4) * 4;
    float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (first + row < end) {
      values = *reinterpret_cast<const float4*>(head + (first + row) * stride + column);
    }
    *reinterpret_cast<float4*>(target + row * kStride + column) = values;
  }
}

__device__ inline float dot(float sum, float4 a, float4 b) {
  return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

__device__ inline float group_max(float x) {
#pragma unroll
  for (int step = kGroup / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

__device__ inline float group_sum(float x) {
#pragma unroll
  for (int step = kGroup / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// kRows: queries a thread works on.
template <int kRows>
__global__ void __launch_bounds__(kThreads, kRows == 4 ? 3 : 4) local_attention_f32(const LocalAttention args) {
  constexpr int kQueries = kThreads / kGroup * kRows;
  __shared__ alignas(16) float queries[kQueries * kStride];
  __shared__ alignas(16) float keys[kKeys * kStride];
  __shared__ alignas(16) float values[kKeys * kStride];
  __shared__ float weights[kQueries * kScoreStride];

  const int begin = args.cu_seqlens[blockIdx.z];
  const int length = args.cu_seqlens[blockIdx.z + 1] - begin;
  const int first_query = blockIdx.x * kQueries;
  if (first_query >= length) return;
  const int head = blockIdx.y;
  const KeyRange range = visible_keys(first_query, kQueries, length, args.window);
  const auto rows_of = [&](const Heads& heads) {
    return static_cast<const float*>(heads.data) + begin * heads.token_stride +
           head * heads.head_stride;
  };
  copy_rows<kQueries>(queries, rows_of(args.q), args.q.token_stride, first_query, length);

  const int member = threadIdx.x % kGroup;
  const int first_row = threadIdx.x / kGroup * kRows;
  const float scale = rsqrtf(static_cast<float>(kWidth));
  float outputs[kRows][kVector] = {};
  float largest[kRows];
  float sums[kRows] = {};
#pragma unroll
  for (int row = 0; row < kRows; ++row) largest[row] = -FLT_MAX;

  for (int first = range.begin; first < range.end; first += kKeys) {
    __syncthreads();
    copy_rows<kKeys>(keys, rows_of(args.k), args.k.token_stride, first, length);
    copy_rows<kKeys>(values, rows_of(args.v), args.v.token_stride, first, length);
    __syncthreads();

    float scores[kRows][kPerThread] = {};
#pragma unroll
    for (int column = 0; column < kWidth; column += 4) {
      float4 query[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        query[row] =
            *reinterpret_cast<const float4*>(queries + (first_row + row) * kStride + column);
      }
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const float4 key =
            *reinterpret_cast<const float4*>(keys + (member + j * kGroup) * kStride + column);
#pragma unroll
        for (int row = 0; row < kRows; ++row) scores[row][j] = dot(scores[row][j], query[row], key);
      }
    }

#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const KeyRange seen =
          visible_keys(first_query + first_row + row, 1, length, args.window);
      float peak = largest[row];
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const int key = first + member + j * kGroup;
        const bool is_seen = key >= seen.begin && key < seen.end;
        scores[row][j] = is_seen ? scores[row][j] * scale : -INFINITY;
        peak = fmaxf(peak, scores[row][j]);
      }
      peak = group_max(peak);
      const float shrink = expf(largest[row] - peak);
      largest[row] = peak;
      sums[row] *= shrink;
#pragma unroll
      for (int i = 0; i < kVector; ++i) outputs[row][i] *= shrink;
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const float weight = expf(scores[row][j] - peak);
        sums[row] += weight;
        weights[(first_row + row) * kScoreStride + member + j * kGroup] = weight;
      }
    }
    // The eight threads of a group are neighbours in one warp.
    __syncwarp();

    for (int key = 0; key < kKeys; ++key) {
      float value[kVector];
      load(values + key * kStride + member * kVector, value);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float weight = weights[(first_row + row) * kScoreStride + key];
#pragma unroll
        for (int i = 0; i < kVector; ++i) outputs[row][i] = fmaf(weight, value[i], outputs[row][i]);
      }
    }
  }

#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float sum = group_sum(sums[row]);
    const int query = first_query + first_row + row;
    if (query >= length) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) outputs[row][i] /= sum;
    float* out = static_cast<float*>(args.out) +
                 ((static_cast<int64_t>(begin) + query) * args.heads + head) * kWidth;
    store(out + member * kVector, outputs[row]);
  }
}

template <int kRows>
void launch(const LocalAttention& args, cudaStream_t stream) {
  constexpr int kQueries = kThreads / kGroup * kRows;
  const dim3 grid((args.max_seqlen + kQueries - 1) / kQueries, args.heads, args.sequences);
  local_attention_f32<kRows><<<grid, kThreads, 0, stream>>>(args);
}

}  // namespace

cudaError_t launch_local_attention_f32(const LocalAttention& args, cudaStream_t stream) {
  const int64_t blocks =
      static_cast<int64_t>((args.max_seqlen + 63) / 64) * args.heads * args.sequences;
  if (blocks >= kManyBlocks) {
    launch<4>(args, stream);
  } else {
    launch<2>(args, stream);
  }
  return cudaGetLastError();
}

}  // namespace system1
