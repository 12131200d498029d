// What the kernels of the gated delta rule share.
#pragma once

#include "launch.h"
#include "tensor_cores.cuh"
#include "vectors.cuh"

namespace system1 {

constexpr int kRows = 64;    // of a chunk
constexpr int kWidth = 128;  // of keys and values
constexpr int kBlock = 16;
constexpr int kBlocks = kRows / kBlock;
constexpr int kSteps = kWidth / kBlock;
// Rows in shared memory begin 16 bytes later each time, so that eight of one tile miss no bank.
constexpr int kWide = kWidth + 8;
constexpr int kNarrow = kRows + 8;

// The second kernel on sm_90a; else it ends the program.
cudaError_t launch_group_carry(const TreeDeltaRule& args, cudaStream_t stream);

template <typename T>
__device__ void unpack(uint32_t pair, float& low, float& high) {
  const auto* values = reinterpret_cast<const T*>(&pair);
  low = to_float(values[0]);
  high = to_float(values[1]);
}

// Turns an 8 x 8 tile of 16-bit values held across a warp.
__device__ inline uint32_t transposed(uint32_t tile) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(result) : "r"(tile));
  return result;
}

// The sums of two neighbouring tiles as the left operand of the next product.
template <typename T>
__device__ void as_left(uint32_t (&left)[4], const float (&low)[4], const float (&high)[4]) {
  left[0] = pack<T>(low[0], low[1]);
  left[1] = pack<T>(low[2], low[3]);
  left[2] = pack<T>(high[0], high[1]);
  left[3] = pack<T>(high[2], high[3]);
}

// From sm_90 on both kernels are launched before the one ahead of them in the stream has ended, which
// hides the launch; they wait for that end by themselves. This lets the next one's blocks start.
__device__ inline void start_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

__device__ inline void wait_for_last_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// A block of the second kernel: `part` of the columns of one value head, along one segment.
struct Path {
  int segment;
  int head;
  int key_head;
  int begin;  // rows
  int end;
  int first;  // chunk
  int count;
  int64_t own;  // place of the state and its flag
};

__device__ inline Path path_of(const TreeDeltaRule& args) {
  Path path;
  path.segment = blockIdx.y / args.value_heads;
  path.head = blockIdx.y % args.value_heads;
  path.key_head = path.head / (args.value_heads / args.key_heads);
  path.begin = args.cu_seqlens[path.segment];
  path.end = args.cu_seqlens[path.segment + 1];
  path.first = args.chunk_starts[path.segment];
  path.count = args.chunk_starts[path.segment + 1] - path.first;
  path.own = (static_cast<int64_t>(path.segment) * args.value_heads + path.head) * args.slices +
             blockIdx.x;
  return path;
}

// Whether another segment continues this one; for all threads of a block.
__device__ inline bool is_continued(const TreeDeltaRule& args, int segment) {
  if (args.flags == nullptr) return false;
  int is_parent = 0;
  for (int other = threadIdx.x; other < args.segments; other += blockDim.x) {
    is_parent |= args.parent_index[other] == segment;
  }
  return __syncthreads_or(is_parent) != 0;
}

// The state that a segment begins with, once its parent's flag is up; whether it has a parent. A
// thread keeps its part of a state where only the same thread of a child will look for it.
template <int kThreads>
__device__ bool take_state(float (&state)[2 * kSteps][4], const TreeDeltaRule& args,
                           const Path& path) {
  if (args.flags == nullptr) return false;
  const int parent = args.parent_index[path.segment];
  if (parent < 0) return false;
  const int64_t theirs =
      (static_cast<int64_t>(parent) * args.value_heads + path.head) * args.slices + blockIdx.x;
  if (threadIdx.x == 0) {
    int is_up;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n"
                   : "=r"(is_up)
                   : "l"(args.flags + theirs)
                   : "memory");
    } while (is_up == 0);
  }
  __syncthreads();
  const auto* source =
      reinterpret_cast<const float4*>(args.states) + theirs * 2 * kSteps * kThreads;
#pragma unroll
  for (int tile = 0; tile < 2 * kSteps; ++tile) {
    const float4 part = __ldcg(source + tile * kThreads + threadIdx.x);
    state[tile][0] = part.x;
    state[tile][1] = part.y;
    state[tile][2] = part.z;
    state[tile][3] = part.w;
  }
  return true;
}

template <int kThreads>
__device__ void hand_over(const float (&state)[2 * kSteps][4], const TreeDeltaRule& args,
                          const Path& path) {
  auto* target = reinterpret_cast<float4*>(args.states) + path.own * 2 * kSteps * kThreads;
#pragma unroll
  for (int tile = 0; tile < 2 * kSteps; ++tile) {
    target[tile * kThreads + threadIdx.x] =
        make_float4(state[tile][0], state[tile][1], state[tile][2], state[tile][3]);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;\n" ::"l"(args.flags + path.own), "r"(1)
                 : "memory");
  }
}

// With `is_early` the blocks may start before the kernel ahead has ended, and wait for it themselves.
template <typename Kernel>
cudaError_t launch_with(Kernel kernel, dim3 grid, int threads, size_t bytes,
                        const TreeDeltaRule& args, cudaStream_t stream, bool is_early = false) {
  // Above 48 KiB a kernel has to ask, once for each device: asking again costs nothing.
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = is_early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args);
}

// Early starts came with sm_90.
inline bool can_start_early() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

}  // namespace system1
