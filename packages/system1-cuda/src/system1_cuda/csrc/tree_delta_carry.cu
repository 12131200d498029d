// The second kernel of the gated delta rule for Hopper: states carried by warpgroup products.
//
// As `carry_states` in tree_delta_rule.cu, a warp owns 16 columns of the state and keeps them in
// registers as the left operand of what comes next. Here four warps multiply together, and a chunk
// costs one barrier; what is off the chain from state to state (copies ahead, the last chunk's rows
// out, decays) runs beside the products.

#include "tree_delta_rule.cuh"
#include "warpgroup.cuh"

namespace system1 {
namespace {

constexpr int kGroup = 4 * kWarp;
constexpr int kGroupColumns = 4 * kBlock;
constexpr int kHalves = kWidth / kTileRow;

template <typename T>
struct alignas(1024) GroupTiles {
  T solved_keys[kWidth * kTileRow];       // [dim][row], negative, swizzled
  T queries[kHalves * kRows * kTileRow];  // [half][row][dim], swizzled
  T keys[kHalves * kRows * kTileRow];     // the same
  T scores[kRows * kTileRow];             // [row][row before], swizzled
  T solved_values[kGroupColumns * kNarrow];  // [column][row]
  float grown[kRows];  // from before the chunk to each row
  float fade[kRows];   // from each row to the chunk's end, right behind `grown`
};

// Queries and keys of a chunk, zeros behind the segment's end.
template <typename T>
__device__ void copy_rows(GroupTiles<T>& tiles, const TreeDeltaRule& args,
                          const Path& path, int index) {
  constexpr int kPieces = kWidth / kVector;
  constexpr int kStep = kGroup / kPieces;  // rows at a time
  static_assert(kStep % 8 == 0);                     // which are all swizzled alike
  const int at = threadIdx.x % kPieces;
  int row = threadIdx.x / kPieces;
  const int64_t first = path.begin + index * kRows + row;
  const int column = path.key_head * kWidth + at * kVector;
  const T* queries = static_cast<const T*>(args.q) + first * args.q_stride + column;
  const T* keys = static_cast<const T*>(args.k) + first * args.k_stride + column;
  const int place = at / 8 * kRows * kTileRow + swizzled(row, at % 8);
  const unsigned to_queries = shared_address(tiles.queries + place);
  const unsigned to_keys = shared_address(tiles.keys + place);
  const int left = path.end - path.begin - index * kRows;
#pragma unroll
  for (int step = 0; step < kRows / kStep; ++step) {
    const bool is_inside = row + step * kStep < left;
    copy_async(to_queries + step * kStep * kTileRow * 2, queries, is_inside);
    copy_async(to_keys + step * kStep * kTileRow * 2, keys, is_inside);
    queries += kStep * args.q_stride;
    keys += kStep * args.k_stride;
  }
}

// `kCount` rows of 64 values that follow one another, to rows of `kPitch` values.
template <int kCount, int kThreads, int kPitch, typename T>
__device__ void copy_tile(T* target, const T* source) {
  constexpr int kPieces = kRows / kVector;
  constexpr int kStep = kThreads / kPieces;
  const int row = threadIdx.x / kPieces;
  const int at = threadIdx.x % kPieces;
  const int place = kPitch == kTileRow ? swizzled(row, at) : row * kPitch + at * kVector;
  const unsigned to = shared_address(target + place);
  source += threadIdx.x * kVector;
#pragma unroll
  for (int step = 0; step < kCount / kStep; ++step) {
    copy_async(to + step * kStep * kPitch * 2, source + step * kThreads * kVector, true);
  }
}

// What the first kernel has left for a chunk.
template <typename T>
__device__ void copy_solved(GroupTiles<T>& tiles, const TreeDeltaRule& args,
                            const Path& path, int index) {
  constexpr int kThreads = kGroup;
  constexpr int kColumns = kGroupColumns;
  const int64_t tile = static_cast<int64_t>(path.first + index) * args.value_heads + path.head;
  const int64_t wide = tile * kRows * kWidth;
  copy_tile<kWidth, kThreads, kTileRow>(tiles.solved_keys,
                                        static_cast<const T*>(args.solved_keys) + wide);
  copy_tile<kRows, kThreads, kTileRow>(tiles.scores,
                                       static_cast<const T*>(args.scores) + tile * kRows * kRows);
  copy_tile<kColumns, kThreads, kNarrow>(
      tiles.solved_values,
      static_cast<const T*>(args.solved_values) + wide + blockIdx.x * kColumns * kRows);
  constexpr int kFloats = 16 / sizeof(float);
  if (threadIdx.x < 2 * kRows / kFloats) {
    copy_async(shared_address(&tiles.grown[threadIdx.x * kFloats]),
               args.decay + tile * 2 * kRows + threadIdx.x * kFloats, true);
  }
}

template <typename T>
__device__ void read_values(float (&fresh)[2 * kBlocks][4], const T* solved_values) {
  const int lane = threadIdx.x % kWarp;
  const int column = threadIdx.x / kWarp * kBlock + lane / 4;
#pragma unroll
  for (int tile = 0; tile < 2 * kBlocks; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto pair = *reinterpret_cast<const uint32_t*>(
          solved_values + (column + 8 * half) * kNarrow + tile * 8 + 2 * (lane % 4));
      unpack<T>(pair, fresh[tile][2 * half], fresh[tile][2 * half + 1]);
    }
  }
}

// The new values as they are at the chunk's end, as the left operand of the keys.
template <typename T>
__device__ void fade_left(uint32_t (&faded)[kBlocks][4], const float (&fresh)[2 * kBlocks][4],
                          const float* fade) {
#pragma unroll
  for (int tile = 0; tile < 2 * kBlocks; ++tile) {
    const auto pair = *reinterpret_cast<const float2*>(fade + tile * 8 + 2 * (threadIdx.x % 4));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      faded[tile / 2][tile % 2 * 2 + half] =
          pack<T>(fresh[tile][2 * half] * pair.x, fresh[tile][2 * half + 1] * pair.y);
    }
  }
}

template <typename T>
__device__ void store_rows(const uint32_t (&packed)[2 * kBlocks][2], T* out, int64_t stride,
                           int rows) {
  const int lane = threadIdx.x % kWarp;
  T* place = out + threadIdx.x / kWarp * kBlock + 2 * (lane % 4);
#pragma unroll
  for (int tile = 0; tile < 2 * kBlocks; ++tile) {
    const int row = tile * 8 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = transposed(packed[tile][half]);
      if (row < rows) *reinterpret_cast<uint32_t*>(place + row * stride + half * 8) = pair;
    }
  }
}

// The chunk's rows are `passed`, grown, and what its own new values add; where the state is kept it
// takes them in too.
template <bool kHasState, bool kIsKept, typename T>
__device__ void finish(float (&state)[2 * kSteps][4], uint32_t (&packed)[2 * kBlocks][2],
                       const float (&fresh)[2 * kBlocks][4], const float (&passed)[2 * kBlocks][4],
                       const GroupTiles<T>& tiles) {
  float found[2 * kBlocks][4] = {};
  uint32_t plain[kBlocks][4], faded[kBlocks][4];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    as_left<T>(plain[block], fresh[2 * block], fresh[2 * block + 1]);
  }
  if constexpr (kIsKept) fade_left<T>(faded, fresh, tiles.fade);
  const uint64_t scores = describe(tiles.scores);
  const uint64_t keys = describe(tiles.keys, sizeof(tiles.keys) / kHalves);
  open_products();
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    multiply_group<T, false>(found, plain[block], scores + block * kNextSteps, block > 0);
  }
  commit_products();
  if constexpr (kIsKept) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      multiply_group<T, true>(state, faded[block], keys + block * kNextRows,
                              kHasState || block > 0);
    }
    commit_products();
  }
  wait_products<kIsKept ? 1 : 0>();
  hold(found);
#pragma unroll
  for (int tile = 0; tile < 2 * kBlocks; ++tile) {
    if constexpr (kHasState) {
      const auto grown =
          *reinterpret_cast<const float2*>(tiles.grown + tile * 8 + 2 * (threadIdx.x % 4));
      packed[tile][0] = pack<T>(found[tile][0] + grown.x * passed[tile][0],
                                found[tile][1] + grown.y * passed[tile][1]);
      packed[tile][1] = pack<T>(found[tile][2] + grown.x * passed[tile][2],
                                found[tile][3] + grown.y * passed[tile][3]);
    } else {
      packed[tile][0] = pack<T>(found[tile][0], found[tile][1]);
      packed[tile][1] = pack<T>(found[tile][2], found[tile][3]);
    }
  }
  if constexpr (kIsKept) {
    wait_products<0>();
    hold(state);
  }
}

// One chunk of 64 columns: `state` [columns, 128] goes in and, where it is kept, comes out; the
// chunk's rows come out as `packed`. `meanwhile` runs beside the first products.
template <bool kHasState, typename T, typename Meanwhile>
__device__ void advance(float (&state)[2 * kSteps][4], uint32_t (&packed)[2 * kBlocks][2],
                        const GroupTiles<T>& tiles, bool is_kept, Meanwhile meanwhile) {
  float fresh[2 * kBlocks][4], passed[2 * kBlocks][4] = {};
  if constexpr (kHasState) {
    uint32_t left[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      as_left<T>(left[step], state[2 * step], state[2 * step + 1]);
    }
    read_values(fresh, tiles.solved_values);
    const uint64_t queries = describe(tiles.queries), solved_keys = describe(tiles.solved_keys);
    constexpr uint64_t kNextHalf = sizeof(tiles.queries) / kHalves / 16;
    open_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      multiply_group<T, true>(fresh, left[step], solved_keys + step * kNextRows, true);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      multiply_group<T, false>(passed, left[step],
                               queries + step / 4 * kNextHalf + step % 4 * kNextSteps, step > 0);
    }
    commit_products();
    meanwhile();
    wait_products<0>();
    hold(fresh);
    hold(passed);
    const float shrunk = tiles.grown[kRows - 1];
#pragma unroll
    for (int tile = 0; tile < 2 * kSteps; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state[tile][i] *= shrunk;
    }
  } else {
    read_values(fresh, tiles.solved_values);
    meanwhile();
  }
  if (is_kept) {
    finish<kHasState, true>(state, packed, fresh, passed, tiles);
  } else {
    finish<kHasState, false>(state, packed, fresh, passed, tiles);
  }
}

template <typename T, int kStages>
__global__ void __launch_bounds__(kGroup) carry_in_groups(const TreeDeltaRule args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* tiles = reinterpret_cast<GroupTiles<T>*>(memory);
  const Path path = path_of(args);
  // Ahead of the first kernel's end: what it only reads.
#pragma unroll
  for (int index = 0; index < kStages; ++index) {
    if (index < path.count) copy_rows(tiles[index], args, path, index);
  }
  const bool is_parent = uniform(is_continued(args, path.segment));
  wait_for_last_kernel();
  const int count = uniform(path.count);
  if (count == 0) return;
#pragma unroll
  for (int index = 0; index < kStages; ++index) {
    if (index < count) copy_solved(tiles[index], args, path, index);
    commit_copies();
  }
  float state[2 * kSteps][4] = {};
  bool has_state = uniform(take_state<kGroup>(state, args, path));

  const int64_t stride = static_cast<int64_t>(args.value_heads) * kWidth;
  T* out = static_cast<T*>(args.out) + path.begin * stride + path.head * kWidth +
           blockIdx.x * kGroupColumns;
  uint32_t packed[2 * kBlocks][2];
  int stage = 0;
  for (int index = 0; index < count; ++index) {
    if (index == 0) {
      wait_copies<kStages - 1>();
    } else {
      wait_copies<(kStages > 1 ? kStages - 2 : 0)>();
    }
    publish_tiles();
    __syncthreads();
    // The rows before this chunk leave, and their tiles are filled again.
    const auto meanwhile = [&] {
      if (index == 0) return;
      store_rows<T>(packed, out + (index - 1) * kRows * stride, stride, kRows);
      if constexpr (kStages > 1) {
        const int next = index + kStages - 1;
        if (next < count) {
          auto& free = tiles[stage == 0 ? kStages - 1 : stage - 1];
          copy_rows(free, args, path, next);
          copy_solved(free, args, path, next);
        }
        commit_copies();
      }
    };
    const bool is_kept = is_parent || index + 1 < count;
    if (has_state) {
      advance<true>(state, packed, tiles[stage], is_kept, meanwhile);
    } else {
      advance<false>(state, packed, tiles[stage], is_kept, meanwhile);
    }
    has_state = true;
    if constexpr (kStages == 1) {
      if (index + 1 < count) {
        __syncthreads();
        copy_rows(tiles[0], args, path, index + 1);
        copy_solved(tiles[0], args, path, index + 1);
        commit_copies();
      }
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  const int last = (count - 1) * kRows;
  store_rows<T>(packed, out + last * stride, stride, path.end - path.begin - last);
  if (is_parent) hand_over<kGroup>(state, args, path);
#else
  __trap();
#endif
}

template <typename T, int kStages>
cudaError_t launch_stages(const TreeDeltaRule& args, cudaStream_t stream) {
  const dim3 grid(kWidth / kGroupColumns,
                  static_cast<unsigned>(args.segments * args.value_heads));
  return launch_with(carry_in_groups<T, kStages>, grid, kGroup,
                     kStages * sizeof(GroupTiles<T>), args, stream, can_start_early());
}

template <typename T>
cudaError_t launch(const TreeDeltaRule& args, cudaStream_t stream) {
  return args.stages == 1 ? launch_stages<T, 1>(args, stream) : launch_stages<T, 3>(args, stream);
}

}  // namespace

cudaError_t launch_group_carry(const TreeDeltaRule& args, cudaStream_t stream) {
  return args.dtype == Dtype::f16 ? launch<__half>(args, stream)
                                  : launch<__nv_bfloat16>(args, stream);
}

}  // namespace system1
