// Bidirectional attention over packed sequences, full or within a window, heads of 64, 16-bit.
//
// A block takes 64 or 128 queries of one head of one sequence, 16 or 32 a warp, and walks over the
// keys they can see 64 at a time with a running softmax in registers (the scheme of FlashAttention,
// 2022). The next keys and values travel while the present ones are multiplied. Keys outside the
// sequence are zeros in shared memory, whatever memory holds there.

#include "local_attention.cuh"
#include "tensor_cores.cuh"

namespace system1 {
namespace {

constexpr int kWidth = 64;
constexpr int kKeys = 64;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kSteps = kWidth / 16;       // products of 16 along the head's width
constexpr int kTiles = kKeys / 8;         // score tiles of 8 keys
constexpr int kChunks = kWidth / 8;       // 16-byte pieces of a row
constexpr float kLog2E = 1.44269504f;

// Byte offset of a 16-byte piece in a tile; pieces are swizzled so that eight rows of one column
// of pieces lie in different banks.
__device__ inline unsigned piece_offset(int row, int chunk) {
  return row * (kWidth * 2) + ((chunk ^ (row & 7)) << 4);
}

template <typename T>
__device__ void copy_rows(unsigned target, const T* head, int64_t stride, int first, int count,
                          int end) {
  for (int piece = threadIdx.x; piece < count * kChunks; piece += kThreads) {
    const int row = piece / kChunks;
    const int chunk = piece % kChunks;
    const bool is_inside = first + row < end;
    const T* source = head + (is_inside ? (first + row) * stride + chunk * 8 : 0);
    copy_async(target + piece_offset(row, chunk), source, is_inside);
  }
}

// 2 ** x, and 0 for minus infinity; results below the normal numbers are zero.
__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}

// Running softmax of one query row: the largest score so far and the sum of this lane's weights.
struct Running {
  float largest = -INFINITY;
  float sum = 0.0f;
};

// Takes one row's new scores into the running softmax: turns them into weights and returns the
// factor that earlier weights shrink by. `scale` leads to powers of two.
template <int kOffset>
__device__ float advance(Running& running, float (&scores)[kTiles][4], float scale) {
  float largest = running.largest;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    largest = fmaxf(largest, fmaxf(scores[tile][kOffset], scores[tile][kOffset + 1]));
  }
  // The four lanes of a row hold its other columns.
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  // A row that has seen no key yet has no largest score; zero keeps its weights at exp(-inf).
  const float base = largest == -INFINITY ? 0.0f : largest * scale;
  const float shrink = exp2_fast(fmaf(running.largest, scale, -base));
  float sum = 0.0f;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = kOffset; i < kOffset + 2; ++i) {
      scores[tile][i] = exp2_fast(fmaf(scores[tile][i], scale, -base));
      sum += scores[tile][i];
    }
  }
  running.largest = largest;
  running.sum = fmaf(running.sum, shrink, sum);
  return shrink;
}

// Hides what one row may not see. Columns count from the lane's first key in the tile.
template <int kOffset>
__device__ void hide(float (&scores)[kTiles][4], int first_column, int last_column) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = tile * 8 + i;
      if (column < first_column || column > last_column) scores[tile][kOffset + i] = -INFINITY;
    }
  }
}

template <typename T, int kRowTiles>
__global__ void __launch_bounds__(kThreads, kRowTiles == 1 ? 4 : 2) local_attention(const LocalAttention args) {
  constexpr int kQueries = kWarps * kRowTiles * 16;
  __shared__ alignas(128) T shared[(kQueries + 4 * kKeys) * kWidth];
  const unsigned query_tile = shared_address(shared);
  const unsigned key_tiles = query_tile + kQueries * kWidth * 2;
  const unsigned value_tiles = key_tiles + 2 * kKeys * kWidth * 2;
  constexpr unsigned kTileBytes = kKeys * kWidth * 2;

  const int begin = args.cu_seqlens[blockIdx.z];
  const int length = args.cu_seqlens[blockIdx.z + 1] - begin;
  const int first_query = blockIdx.x * kQueries;
  if (first_query >= length) return;
  const int head = blockIdx.y;
  const KeyRange range = visible_keys(first_query, kQueries, length, args.window);

  const auto rows_of = [&](const Heads& heads) {
    return static_cast<const T*>(heads.data) + begin * heads.token_stride +
           head * heads.head_stride;
  };
  const T* keys = rows_of(args.k);
  const T* values = rows_of(args.v);
  const auto fetch = [&](int first, int slot) {
    copy_rows(key_tiles + slot * kTileBytes, keys, args.k.token_stride, first, kKeys, length);
    copy_rows(value_tiles + slot * kTileBytes, values, args.v.token_stride, first, kKeys, length);
    commit_copies();
  };
  copy_rows(query_tile, rows_of(args.q), args.q.token_stride, first_query, kQueries, length);
  fetch(range.begin, 0);

  const int lane = threadIdx.x % 32;
  const int first_row = threadIdx.x / 32 * kRowTiles * 16;
  uint32_t queries[kRowTiles][kSteps][4];
  float outputs[kRowTiles][kChunks][4] = {};
  Running running[kRowTiles][2];
  const float scale = kLog2E * rsqrtf(static_cast<float>(kWidth));

  for (int first = range.begin, slot = 0; first < range.end; first += kKeys, slot ^= 1) {
    wait_copies<0>();
    // Everybody's copies have arrived, and nobody reads the other slot any more.
    __syncthreads();
    if (first + kKeys < range.end) fetch(first + kKeys, slot ^ 1);
    if (first == range.begin) {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const int row = first_row + tile * 16 + lane % 16;
          load_tiles(queries[tile][step],
                     query_tile + piece_offset(row, step * 2 + lane / 16));
        }
      }
    }

    float scores[kRowTiles][kTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kTiles / 2; ++pair) {
        uint32_t tiles[4];
        const int row = pair * 16 + lane / 16 * 8 + lane % 8;
        load_tiles(tiles, key_tiles + slot * kTileBytes +
                              piece_offset(row, step * 2 + lane / 8 % 2));
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          multiply<T>(scores[tile][2 * pair], queries[tile][step], tiles[0], tiles[1]);
          multiply<T>(scores[tile][2 * pair + 1], queries[tile][step], tiles[2], tiles[3]);
        }
      }
    }

    // Most tiles lie inside the sequence and every query's window, and skip the comparisons.
    if (is_cut(first, first_query, kQueries, length, args.window)) {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const int upper = first_query + first_row + tile * 16 + lane / 4;
        const int column = first + lane % 4 * 2;
        const KeyRange above = visible_keys(upper, 1, length, args.window);
        const KeyRange below = visible_keys(upper + 8, 1, length, args.window);
        hide<0>(scores[tile], above.begin - column, above.end - 1 - column);
        hide<2>(scores[tile], below.begin - column, below.end - 1 - column);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const float upper = advance<0>(running[tile][0], scores[tile], scale);
      const float lower = advance<2>(running[tile][1], scores[tile], scale);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        outputs[tile][chunk][0] *= upper;
        outputs[tile][chunk][1] *= upper;
        outputs[tile][chunk][2] *= lower;
        outputs[tile][chunk][3] *= lower;
      }
    }

#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t weights[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const auto& left = scores[tile][2 * step];
        const auto& right = scores[tile][2 * step + 1];
        weights[tile][0] = pack<T>(left[0], left[1]);
        weights[tile][1] = pack<T>(left[2], left[3]);
        weights[tile][2] = pack<T>(right[0], right[1]);
        weights[tile][3] = pack<T>(right[2], right[3]);
      }
#pragma unroll
      for (int pair = 0; pair < kChunks / 2; ++pair) {
        uint32_t tiles[4];
        load_tiles_transposed(tiles, value_tiles + slot * kTileBytes +
                                         piece_offset(step * 16 + lane % 16, pair * 2 + lane / 16));
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          multiply<T>(outputs[tile][2 * pair], weights[tile], tiles[0], tiles[1]);
          multiply<T>(outputs[tile][2 * pair + 1], weights[tile], tiles[2], tiles[3]);
        }
      }
    }
  }

  // A warp's outputs take the place of its queries, to leave in pieces of 16 bytes.
  __syncwarp();
  uint32_t* words = reinterpret_cast<uint32_t*>(shared);
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = running[tile][half].sum;
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float inverse = 1.0f / sum;
      const int row = first_row + tile * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const float* pair = outputs[tile][chunk] + half * 2;
        words[piece_offset(row, chunk) / 4 + lane % 4] =
            pack<T>(pair[0] * inverse, pair[1] * inverse);
      }
    }
  }
  __syncwarp();
  T* out = static_cast<T*>(args.out);
#pragma unroll
  for (int piece = lane; piece < kRowTiles * 16 * kChunks; piece += 32) {
    const int row = first_row + piece / kChunks;
    const int chunk = piece % kChunks;
    if (first_query + row >= length) continue;
    const int64_t place =
        ((static_cast<int64_t>(begin) + first_query + row) * args.heads + head) * kWidth;
    *reinterpret_cast<uint4*>(out + place + chunk * 8) =
        *reinterpret_cast<const uint4*>(words + piece_offset(row, chunk) / 4);
  }
}

template <typename T, int kRowTiles>
void launch(const LocalAttention& args, cudaStream_t stream) {
  constexpr int kQueries = kWarps * kRowTiles * 16;
  const dim3 grid((args.max_seqlen + kQueries - 1) / kQueries, args.heads, args.sequences);
  local_attention<T, kRowTiles><<<grid, kThreads, 0, stream>>>(args);
}

template <typename T>
void choose(const LocalAttention& args, cudaStream_t stream) {
  // Two row tiles a warp read each key half as often, but need enough blocks to fill the chip.
  const int64_t blocks =
      static_cast<int64_t>((args.max_seqlen + 127) / 128) * args.heads * args.sequences;
  if (args.window < 0 && blocks >= kManyBlocks) {
    launch<T, 2>(args, stream);
  } else {
    launch<T, 1>(args, stream);
  }
}

}  // namespace

cudaError_t launch_local_attention(const LocalAttention& args, cudaStream_t stream) {
  if (args.sequences * args.heads == 0 || args.max_seqlen == 0) return cudaSuccess;
  switch (args.dtype) {
    case Dtype::f32: return launch_local_attention_f32(args, stream);
    case Dtype::f16: choose<__half>(args, stream); break;
    case Dtype::bf16: choose<__nv_bfloat16>(args, stream); break;
  }
  return cudaGetLastError();
}

}  // namespace system1
