// Matrix products of a warpgroup, sm_90a alone: left operand in registers, right one in shared memory.
//
// A right operand lies in tiles of 128-byte rows whose eight 16-byte pieces are swizzled by the row
// (`swizzled`); a tile begins at a multiple of 1,024 bytes. Products run beside the threads: between
// `open_products` and the `wait_products` behind them nobody touches their registers.
#pragma once

#include <type_traits>

#include "tensor_cores.cuh"

namespace system1 {

constexpr int kTileRow = 64;  // 16-bit values of a row

// Where a piece of 8 values lies, in values.
__device__ inline int swizzled(int row, int piece) {
  return row * kTileRow + ((piece ^ (row % 8)) * 8);
}

// The descriptor of a right operand. Groups of eight rows are 1,024 bytes apart; `apart` is the bytes
// from one tile to the next for more than 64 columns of a transposed operand. Descriptors count in 16
// bytes: 16 steps on are `kNextSteps` in [column][step] rows, `kNextRows` in [step][column] rows.
constexpr uint64_t kNextSteps = 16 * 2 / 16;
constexpr uint64_t kNextRows = 16 * kTileRow * 2 / 16;

__device__ inline uint64_t describe(const void* tile, unsigned apart = 0) {
  constexpr uint64_t kSwizzle128 = 1ull << 62;
  constexpr uint64_t kEightRows = (8 * kTileRow * 2 / 16) * (1ull << 32);
  return kSwizzle128 | kEightRows | (static_cast<uint64_t>(apart / 16) << 16) |
         ((shared_address(tile) & 0x3ffff) / 16);
}

__device__ inline void open_products() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int kPending>
__device__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// The same value, known to the compiler as one for the whole warp: products in a branch that threads
// might take apart would wait for one another.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// Makes a thread's own writes to shared memory visible to products that start behind the next barrier.
__device__ inline void publish_tiles() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Keeps the compiler from reading sums ahead of the wait before.
template <int kTiles>
__device__ void hold(float (&sums)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[tile][i])::"memory");
  }
}

#define SYSTEM1_NAMES_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SYSTEM1_NAMES_32 \
  SYSTEM1_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SYSTEM1_NAMES_64                                                             \
  SYSTEM1_NAMES_32                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SYSTEM1_TILE(t) \
  "+f"(sums[t][0]), "+f"(sums[t][1]), "+f"(sums[t][2]), "+f"(sums[t][3])
#define SYSTEM1_TILES(t) \
  SYSTEM1_TILE(t), SYSTEM1_TILE(t + 1), SYSTEM1_TILE(t + 2), SYSTEM1_TILE(t + 3)
// The operands behind the sums: four registers of the left one, the right one, whether the sums count.
#define SYSTEM1_PRODUCT(COLUMNS, DTYPE, NAMES, LEFT, RIGHT, ADDS, TURNED, ...)                   \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" ADDS                                   \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." DTYPE "." DTYPE      \
               " {" NAMES "}, {" LEFT "}, %" RIGHT ", adds, 1, 1, %" TURNED ";\n}\n"             \
               : __VA_ARGS__                                                                     \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),             \
                 "r"(static_cast<int>(adds)), "n"(kTransposed))
#define SYSTEM1_PRODUCTS(DTYPE)                                                                  \
  if constexpr (kTiles == 4) {                                                                   \
    SYSTEM1_PRODUCT("32", DTYPE, SYSTEM1_NAMES_16, "%16, %17, %18, %19", "20", "21", "22",       \
                    SYSTEM1_TILES(0));                                                           \
  } else if constexpr (kTiles == 8) {                                                            \
    SYSTEM1_PRODUCT("64", DTYPE, SYSTEM1_NAMES_32, "%32, %33, %34, %35", "36", "37", "38",       \
                    SYSTEM1_TILES(0), SYSTEM1_TILES(4));                                         \
  } else {                                                                                       \
    static_assert(kTiles == 16);                                                                 \
    SYSTEM1_PRODUCT("128", DTYPE, SYSTEM1_NAMES_64, "%64, %65, %66, %67", "68", "69", "70",      \
                    SYSTEM1_TILES(0), SYSTEM1_TILES(4), SYSTEM1_TILES(8), SYSTEM1_TILES(12));    \
  }

// sums[64, 8 kTiles] (+)= left[64, 16] @ right[16, 8 kTiles]; a warp holds 16 rows as `multiply` does.
// The right operand's rows are [column][step], or [step][column] when transposed.
template <typename T, bool kTransposed, int kTiles>
__device__ void multiply_group(float (&sums)[kTiles][4], const uint32_t (&left)[4], uint64_t right,
                               bool adds) {
  if constexpr (std::is_same_v<T, __half>) {
    SYSTEM1_PRODUCTS("f16")
  } else {
    SYSTEM1_PRODUCTS("bf16")
  }
}

#undef SYSTEM1_PRODUCTS
#undef SYSTEM1_PRODUCT
#undef SYSTEM1_TILES
#undef SYSTEM1_TILE
#undef SYSTEM1_NAMES_64
#undef SYSTEM1_NAMES_32
#undef SYSTEM1_NAMES_16

}  // namespace system1
