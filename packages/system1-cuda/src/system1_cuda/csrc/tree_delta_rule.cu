// The gated delta rule over a packed tree, in two kernels on warp-level matrix products; on Hopper the
// second is the one of tree_delta_carry.cu.
//
// Within a chunk of 64 rows the new values are U - W S for the state S that enters it (the chunked form
// of Gated DeltaNet, 2025). The first kernel finds U and -W of every chunk and value head by block
// substitution, the second carries S from chunk to chunk and from parent to child. Both work on
// transposed tiles: a warp owns 16 columns, and what one product leaves in registers is the next one's
// left operand, so nothing but the chunk's inputs passes through shared memory.

#include "tree_delta_rule.cuh"

namespace system1 {
namespace {

constexpr int kTiny = kBlock + 8;
constexpr int kSolveThreads = 256;

// Right operands for two neighbouring tiles of 8 columns and 16 steps, from [column][step] rows.
template <typename T>
__device__ void load_right(uint32_t (&tiles)[4], const T* rows, int pitch, int column, int step) {
  const int lane = threadIdx.x % kWarp;
  const int row = column + (lane / 16) * 8 + lane % 8;
  load_tiles(tiles, shared_address(rows + row * pitch + step + ((lane / 8) & 1) * 8));
}

// The same from [step][column] rows.
template <typename T>
__device__ void load_right_transposed(uint32_t (&tiles)[4], const T* rows, int pitch, int column,
                                      int step) {
  const int lane = threadIdx.x % kWarp;
  const int row = step + ((lane / 8) & 1) * 8 + lane % 8;
  load_tiles_transposed(tiles, shared_address(rows + row * pitch + column + (lane / 16) * 8));
}

// A left operand of 16 rows and 16 steps, from [row][step] rows.
template <typename T>
__device__ void load_left(uint32_t (&tiles)[4], const T* rows, int pitch, int row, int step) {
  const int lane = threadIdx.x % kWarp;
  const int line = row + ((lane / 8) & 1) * 8 + lane % 8;
  load_tiles(tiles, shared_address(rows + line * pitch + step + (lane / 16) * 8));
}

// Rows [first, end) of one head to shared memory, zeros behind them.
template <typename T, int kThreads>
__device__ void copy_head(T* target, const T* head, int64_t stride, int first, int end) {
  constexpr int kPieces = kWidth / kVector;
  for (int piece = threadIdx.x; piece < kRows * kPieces; piece += kThreads) {
    const int row = piece / kPieces;
    const int at = (piece % kPieces) * kVector;
    const bool is_inside = first + row < end;
    const T* source = head + (is_inside ? (first + row) * stride + at : 0);
    copy_async(shared_address(target + row * kWide + at), source, is_inside);
  }
}

template <typename T>
struct SolveTiles {
  T keys[kRows * kWide];
  T queries[kRows * kWide];
  T values[kRows * kWide];
  T overlap[kRows * kNarrow];             // below the diagonal, negative
  T inverse[kBlocks * kBlock * kTiny];    // of the blocks on the diagonal
  float diagonal[kBlocks * kBlock * (kBlock + 1)];
  float total[kRows];  // log decay from the chunk's first row on
  float grown[kRows];
  float step[kRows];
};

// One warp: log decays and gates of the chunk, two rows a lane. `decay` keeps what has grown up to
// each row and what fades from it to the chunk's end.
template <typename T>
__device__ void read_gates(SolveTiles<T>& tiles, const TreeDeltaRule& args, int first, int end,
                           int head, float* decay) {
  const int lane = threadIdx.x;
  float gates[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = first + 2 * lane + i;
    const bool is_inside = row < end;
    gates[i] = is_inside ? args.g[row * args.g_stride + head] : 0.0f;
    tiles.step[2 * lane + i] =
        is_inside ? to_float(static_cast<const T*>(args.beta)[row * args.beta_stride + head])
                  : 0.0f;
  }
  float sum = gates[0] + gates[1];
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  const float totals[2] = {sum - gates[1], sum};
  const float whole = __shfl_sync(0xffffffffu, sum, kWarp - 1);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    tiles.total[2 * lane + i] = totals[i];
    tiles.grown[2 * lane + i] = __expf(totals[i]);
    decay[2 * lane + i] = tiles.grown[2 * lane + i];
    decay[kRows + 2 * lane + i] = __expf(whole - totals[i]);
  }
}

// Sixteen rows and 32 columns of both key products: the overlap to shared memory, the scores out.
template <typename T>
__device__ void multiply_keys(SolveTiles<T>& tiles, T* scores) {
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int row0 = (warp % kBlocks) * kBlock;
  const int column0 = (warp / kBlocks) * 2 * kBlock;
  if (column0 > row0) {
    // Nothing there is below the diagonal; of the scores the warpgroup products read all.
    const int4 zeros = {};
    T* line = scores + (row0 + lane / 2) * kRows + column0 + lane % 2 * kBlock;
    auto* place = reinterpret_cast<int4*>(line);
    place[0] = zeros;
    place[1] = zeros;
    return;
  }
  float overlap[4][4] = {}, seen[4][4] = {};
#pragma unroll
  for (int step = 0; step < kWidth; step += kBlock) {
    uint32_t key[4], query[4];
    load_left(key, tiles.keys, kWide, row0, step);
    load_left(query, tiles.queries, kWide, row0, step);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t right[4];
      load_right(right, tiles.keys, kWide, column0 + pair * kBlock, step);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply<T>(overlap[2 * pair + half], key, right[2 * half], right[2 * half + 1]);
        multiply<T>(seen[2 * pair + half], query, right[2 * half], right[2 * half + 1]);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + lane / 4 + 8 * half;
      const int column = column0 + tile * 8 + 2 * (lane % 4);
      float pair[2], chances[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // Above the diagonal the exponent would be positive without bound.
        const float faded =
            row >= column + i ? __expf(tiles.total[row] - tiles.total[column + i]) : 0.0f;
        chances[i] = seen[tile][2 * half + i] * faded;
        pair[i] = row > column + i ? -overlap[tile][2 * half + i] * faded * tiles.step[row] : 0.0f;
        if (row / kBlock == (column + i) / kBlock) {
          const int place = (row / kBlock) * kBlock + row % kBlock;
          tiles.diagonal[place * (kBlock + 1) + (column + i) % kBlock] = pair[i];
        }
      }
      *reinterpret_cast<uint32_t*>(&tiles.overlap[row * kNarrow + column]) =
          pack<T>(pair[0], pair[1]);
      *reinterpret_cast<uint32_t*>(&scores[row * kRows + column]) =
          pack<T>(chances[0], chances[1]);
    }
  }
}

// Four warps: the inverse of one block of 16 on the diagonal each, a column a lane.
template <typename T>
__device__ void invert_diagonal(SolveTiles<T>& tiles) {
  const int warp = threadIdx.x / kWarp;
  const int column = threadIdx.x % kWarp;
  if (warp >= kBlocks || column >= kBlock) return;
  const float* rows = tiles.diagonal + warp * kBlock * (kBlock + 1);
  float x[kBlock];
#pragma unroll
  for (int row = 0; row < kBlock; ++row) {
    float sum = row == column ? 1.0f : 0.0f;
#pragma unroll
    for (int before = 0; before < row; ++before) {
      sum += rows[row * (kBlock + 1) + before] * x[before];
    }
    x[row] = sum;
    tiles.inverse[(warp * kBlock + row) * kTiny + column] = from_float<T>(sum);
  }
}

// A block of 16 rows of 16 columns, scaled for the substitution.
template <typename T>
__device__ void read_given(float (&sums)[2][4], const SolveTiles<T>& tiles, const T* source,
                           int row0, int column0, bool is_key) {
  const int lane = threadIdx.x % kWarp;
  // Tiles 0 and 1 are the first eight rows of both halves of the columns, 2 and 3 the next.
  uint32_t given[4];
  load_tiles_transposed(given, shared_address(source + (row0 + (lane / 16) * 8 + lane % 8) * kWide +
                                              column0 + ((lane / 8) & 1) * 8));
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    unpack<T>(given[2 * tile], sums[tile][0], sums[tile][1]);
    unpack<T>(given[2 * tile + 1], sums[tile][2], sums[tile][3]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = row0 + tile * 8 + 2 * (lane % 4) + i;
      const float scale = tiles.step[row] * (is_key ? tiles.grown[row] : 1.0f);
      sums[tile][i] *= scale;
      sums[tile][2 + i] *= scale;
    }
  }
}

// Sixteen columns of the solution for values and keys by block substitution, written as
// [column][row], keys negative. Both go side by side: each alone would mostly wait for itself.
template <typename T>
__device__ void substitute(const SolveTiles<T>& tiles, int column0, T* values, T* keys) {
  const int lane = threadIdx.x % kWarp;
  uint32_t solved[2][kBlocks][4];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int row0 = block * kBlock;
    float sums[2][2][4];
    read_given(sums[0], tiles, tiles.values, row0, column0, false);
    read_given(sums[1], tiles, tiles.keys, row0, column0, true);
#pragma unroll
    for (int before = 0; before < block; ++before) {
      uint32_t right[4];
      load_right(right, tiles.overlap, kNarrow, row0, before * kBlock);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        multiply<T>(sums[side][0], solved[side][before], right[0], right[1]);
        multiply<T>(sums[side][1], solved[side][before], right[2], right[3]);
      }
    }
    uint32_t right[4];
    load_right(right, tiles.inverse + block * kBlock * kTiny, kTiny, 0, 0);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      uint32_t left[4];
      as_left<T>(left, sums[side][0], sums[side][1]);
      float found[2][4] = {};
      multiply<T>(found[0], left, right[0], right[1]);
      multiply<T>(found[1], left, right[2], right[3]);
      as_left<T>(solved[side][block], found[0], found[1]);
      constexpr uint32_t kSigns = 0x80008000u;
      T* target = (side == 0 ? values : keys) + row0 + 2 * (lane % 4);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int column = column0 + lane / 4 + part % 2 * 8;
        *reinterpret_cast<uint32_t*>(target + column * kRows + part / 2 * 8) =
            solved[side][block][part] ^ (side == 0 ? 0u : kSigns);
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kSolveThreads, 3) solve_chunks(const TreeDeltaRule args) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& tiles = *reinterpret_cast<SolveTiles<T>*>(memory);
  // The next kernel may read what this one only reads: it starts when that is there.
  wait_for_last_kernel();
  start_next_kernel();
  const int chunk = blockIdx.x;
  const int head = blockIdx.y;
  const int segment = args.chunks[2 * chunk];
  if (segment < 0) return;
  const int first = args.chunks[2 * chunk + 1];
  const int end = args.cu_seqlens[segment + 1];
  const int key_head = head / (args.value_heads / args.key_heads);
  if (args.flags != nullptr && first == args.cu_seqlens[segment] &&
      threadIdx.x < static_cast<unsigned>(args.slices)) {
    args.flags[(static_cast<int64_t>(segment) * args.value_heads + head) * args.slices +
               threadIdx.x] = 0;
  }
  const T* keys = static_cast<const T*>(args.k) + key_head * kWidth;
  const T* queries = static_cast<const T*>(args.q) + key_head * kWidth;
  const T* values = static_cast<const T*>(args.v) + head * kWidth;
  copy_head<T, kSolveThreads>(tiles.keys, keys, args.k_stride, first, end);
  copy_head<T, kSolveThreads>(tiles.queries, queries, args.q_stride, first, end);
  commit_copies();
  copy_head<T, kSolveThreads>(tiles.values, values, args.v_stride, first, end);
  commit_copies();
  const int64_t tile = static_cast<int64_t>(chunk) * args.value_heads + head;
  if (threadIdx.x < kWarp) {
    read_gates(tiles, args, first, end, head, args.decay + tile * 2 * kRows);
  }
  wait_copies<1>();
  __syncthreads();
  multiply_keys(tiles, static_cast<T*>(args.scores) + tile * kRows * kRows);
  __syncthreads();
  invert_diagonal(tiles);
  wait_copies<0>();
  __syncthreads();
  const int column0 = (threadIdx.x / kWarp) * kBlock;
  substitute(tiles, column0, static_cast<T*>(args.solved_values) + tile * kRows * kWidth,
             static_cast<T*>(args.solved_keys) + tile * kRows * kWidth);
}

template <typename T, int kWarps>
struct CarryTiles {
  T solved_keys[kWidth * kNarrow];  // [dim][row], negative
  T queries[kRows * kWide];
  T keys[kRows * kWide];
  T scores[kRows * kNarrow];
  T solved_values[kWarps * kBlock * kNarrow];  // [column][row]
  float decay[2 * kRows];  // grown up to each row, fading from it
};

template <typename T, int kWarps>
__device__ void copy_chunk(CarryTiles<T, kWarps>& tiles, const TreeDeltaRule& args, int chunk,
                           int head, int key_head, int first, int end) {
  constexpr int kThreads = kWarps * kWarp;
  constexpr int kPieces = kRows / kVector;
  const int64_t tile = static_cast<int64_t>(chunk) * args.value_heads + head;
  const T* solved_keys = static_cast<const T*>(args.solved_keys) + tile * kRows * kWidth;
  for (int piece = threadIdx.x; piece < kWidth * kPieces; piece += kThreads) {
    const int at = (piece % kPieces) * kVector;
    copy_async(shared_address(tiles.solved_keys + piece / kPieces * kNarrow + at),
               solved_keys + piece * kVector, true);
  }
  const T* scores = static_cast<const T*>(args.scores) + tile * kRows * kRows;
  for (int piece = threadIdx.x; piece < kRows * kPieces; piece += kThreads) {
    const int at = (piece % kPieces) * kVector;
    copy_async(shared_address(tiles.scores + piece / kPieces * kNarrow + at),
               scores + piece * kVector, true);
  }
  const int column0 = blockIdx.x * kWarps * kBlock;
  const T* values = static_cast<const T*>(args.solved_values) + tile * kRows * kWidth;
  for (int piece = threadIdx.x; piece < kWarps * kBlock * kPieces; piece += kThreads) {
    const int at = (piece % kPieces) * kVector;
    copy_async(shared_address(tiles.solved_values + piece / kPieces * kNarrow + at),
               values + column0 * kRows + piece * kVector, true);
  }
  copy_head<T, kThreads>(tiles.queries, static_cast<const T*>(args.q) + key_head * kWidth,
                         args.q_stride, first, end);
  copy_head<T, kThreads>(tiles.keys, static_cast<const T*>(args.k) + key_head * kWidth,
                         args.k_stride, first, end);
  if (threadIdx.x < 2 * kRows * 4 / 16) {
    copy_async(shared_address(tiles.decay + 4 * threadIdx.x),
               args.decay + tile * 2 * kRows + 4 * threadIdx.x, true);
  }
}

// sums[16 columns, 64 rows] += state[16 columns, 128] @ rows, [row][step] or transposed. The next
// step's operands are asked for before this one's products: a block has one warp for each scheduler,
// and nothing else would hide the wait.
template <typename T, bool kTransposed>
__device__ void multiply_state(float (&sums)[2 * kBlocks][4], const float (&state)[2 * kSteps][4],
                               const T* rows, int pitch) {
  uint32_t right[2][kBlocks][4];
#pragma unroll
  for (int step = -1; step < kSteps; ++step) {
    if (step + 1 < kSteps) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        auto& tiles = right[(step + 1) % 2][block];
        if constexpr (kTransposed) {
          load_right_transposed(tiles, rows, pitch, block * kBlock, (step + 1) * kBlock);
        } else {
          load_right(tiles, rows, pitch, block * kBlock, (step + 1) * kBlock);
        }
      }
    }
    if (step < 0) continue;
    uint32_t left[4];
    as_left<T>(left, state[2 * step], state[2 * step + 1]);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const auto& tiles = right[step % 2][block];
      multiply<T>(sums[2 * block], left, tiles[0], tiles[1]);
      multiply<T>(sums[2 * block + 1], left, tiles[2], tiles[3]);
    }
  }
}

// state[16 columns, 128] += faded[16 columns, 64 rows] @ keys [row][dim].
template <typename T>
__device__ void add_keys(float (&state)[2 * kSteps][4], const uint32_t (&faded)[kBlocks][4],
                         const T* keys) {
  constexpr int kGroup = 4;  // pairs of tiles in flight
  constexpr int kGroups = kBlocks * kSteps / kGroup;
  uint32_t right[2][kGroup][4];
#pragma unroll
  for (int group = -1; group < kGroups; ++group) {
    if (group + 1 < kGroups) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int index = (group + 1) * kGroup + i;
        load_right_transposed(right[(group + 1) % 2][i], keys, kWide, index % kSteps * kBlock,
                              index / kSteps * kBlock);
      }
    }
    if (group < 0) continue;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int index = group * kGroup + i;
      const auto& tiles = right[group % 2][i];
      const int step = index % kSteps;
      multiply<T>(state[2 * step], faded[index / kSteps], tiles[0], tiles[1]);
      multiply<T>(state[2 * step + 1], faded[index / kSteps], tiles[2], tiles[3]);
    }
  }
}

// One chunk of one warp's 16 columns: `state` [16 columns, 128] goes in and, where it is kept, comes
// out. Without a state there is nothing to multiply it by.
template <typename T, int kWarps>
__device__ void advance(float (&state)[2 * kSteps][4], const CarryTiles<T, kWarps>& tiles,
                        T* out, int64_t out_stride, int rows, bool has_state, bool is_kept) {
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  uint32_t plain[kBlocks][4], faded[kBlocks][4];
  {
    float fresh[2 * kBlocks][4];
    const T* values = tiles.solved_values + (warp * kBlock + lane / 4) * kNarrow + 2 * (lane % 4);
#pragma unroll
    for (int tile = 0; tile < 2 * kBlocks; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto pair =
            *reinterpret_cast<const uint32_t*>(values + 8 * half * kNarrow + tile * 8);
        unpack<T>(pair, fresh[tile][2 * half], fresh[tile][2 * half + 1]);
      }
    }
    if (has_state) multiply_state<T, true>(fresh, state, tiles.solved_keys, kNarrow);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      as_left<T>(plain[block], fresh[2 * block], fresh[2 * block + 1]);
    }
#pragma unroll
    for (int tile = 0; tile < 2 * kBlocks; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float fade = tiles.decay[kRows + tile * 8 + 2 * (lane % 4) + i];
        fresh[tile][i] *= fade;
        fresh[tile][2 + i] *= fade;
      }
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      as_left<T>(faded[block], fresh[2 * block], fresh[2 * block + 1]);
    }
  }
  float found[2 * kBlocks][4] = {};
  if (has_state) multiply_state<T, false>(found, state, tiles.queries, kWide);
#pragma unroll
  for (int tile = 0; tile < 2 * kBlocks; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float grown = tiles.decay[tile * 8 + 2 * (lane % 4) + i];
      found[tile][i] *= grown;
      found[tile][2 + i] *= grown;
    }
  }
  const float shrunk = tiles.decay[kRows - 1];
#pragma unroll
  for (int tile = 0; tile < 2 * kSteps; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state[tile][i] *= shrunk;
  }
#pragma unroll
  for (int before = 0; before < kBlocks; ++before) {
    uint32_t right[kBlocks][4];
#pragma unroll
    for (int block = before; block < kBlocks; ++block) {
      load_right(right[block], tiles.scores, kNarrow, block * kBlock, before * kBlock);
    }
#pragma unroll
    for (int block = before; block < kBlocks; ++block) {
      multiply<T>(found[2 * block], plain[before], right[block][0], right[block][1]);
      multiply<T>(found[2 * block + 1], plain[before], right[block][2], right[block][3]);
    }
  }
  if (is_kept) add_keys(state, faded, tiles.keys);
#pragma unroll
  for (int tile = 0; tile < 2 * kBlocks; ++tile) {
    const int row = tile * 8 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair =
          transposed(pack<T>(found[tile][2 * half], found[tile][2 * half + 1]));
      if (row < rows) {
        T* place = out + row * out_stride + warp * kBlock + half * 8 + 2 * (lane % 4);
        *reinterpret_cast<uint32_t*>(place) = pair;
      }
    }
  }
}

template <typename T, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps * kWarp) carry_states(const TreeDeltaRule args) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* tiles = reinterpret_cast<CarryTiles<T, kWarps>*>(memory);
  const Path path = path_of(args);
  const bool is_parent = is_continued(args, path.segment);
  wait_for_last_kernel();
  if (path.count == 0) return;
  copy_chunk(tiles[0], args, path.first, path.head, path.key_head, path.begin, path.end);
  commit_copies();
  float state[2 * kSteps][4] = {};
  bool has_state = take_state<kWarps * kWarp>(state, args, path);

  const int64_t out_stride = static_cast<int64_t>(args.value_heads) * kWidth;
  T* out = static_cast<T*>(args.out) + path.head * kWidth + blockIdx.x * kWarps * kBlock;
  for (int index = 0; index < path.count; ++index) {
    const int row = path.begin + index * kRows;
    const auto copy_next = [&] {
      copy_chunk(tiles[(index + 1) % kStages], args, path.first + index + 1, path.head,
                 path.key_head, row + kRows, path.end);
      commit_copies();
    };
    const bool is_last = index + 1 == path.count;
    if (kStages > 1 && !is_last) {
      copy_next();
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    advance(state, tiles[index % kStages], out + row * out_stride, out_stride, path.end - row,
            has_state, is_parent || !is_last);
    has_state = true;
    __syncthreads();
    if (kStages == 1 && !is_last) copy_next();
  }
  if (is_parent) hand_over<kWarps * kWarp>(state, args, path);
}

template <typename T, int kWarps, int kStages>
cudaError_t launch_carry(const TreeDeltaRule& args, cudaStream_t stream) {
  const dim3 grid(kWidth / (kWarps * kBlock),
                  static_cast<unsigned>(args.segments * args.value_heads));
  return launch_with(carry_states<T, kWarps, kStages>, grid, kWarps * kWarp,
                     kStages * sizeof(CarryTiles<T, kWarps>), args, stream, can_start_early());
}

template <typename T>
cudaError_t launch(const TreeDeltaRule& args, cudaStream_t stream) {
  const dim3 grid(args.num_chunks, args.value_heads);
  const cudaError_t error = launch_with(solve_chunks<T>, grid, kSolveThreads, sizeof(SolveTiles<T>),
                                        args, stream, can_start_early());
  if (error != cudaSuccess) return error;
  if (args.groups) return launch_group_carry(args, stream);
  if (args.slices == 4) {
    return args.stages > 1 ? launch_carry<T, 2, 2>(args, stream)
                           : launch_carry<T, 2, 1>(args, stream);
  }
  return args.stages > 1 ? launch_carry<T, 4, 2>(args, stream)
                         : launch_carry<T, 4, 1>(args, stream);
}

}  // namespace

cudaError_t launch_tree_delta_rule(const TreeDeltaRule& args, cudaStream_t stream) {
  if (args.num_chunks == 0) return cudaSuccess;
  return args.dtype == Dtype::f16 ? launch<__half>(args, stream)
                                  : launch<__nv_bfloat16>(args, stream);
}

}  // namespace system1
