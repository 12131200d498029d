// Which keys a query sees, shared by the 16-bit and the float32 kernel.
#pragma once

#include <cuda_runtime.h>

#include "launch.h"

namespace system1 {

// From this many blocks on, blocks of 128 queries fill an H200 (132 multiprocessors) twice.
constexpr int64_t kManyBlocks = 264;

struct KeyRange {
  int begin;
  int end;
};

// The keys that any of `count` queries from `first` on can see. A window is below the length's
// limit, so that the sums fit.
__device__ inline KeyRange visible_keys(int first, int count, int length, int window) {
  if (window < 0) return {0, length};
  return {max(first - window, 0), min(first + count + window, length)};
}

// Whether some of the 64 keys from `first` on are hidden from some of `count` queries.
__device__ inline bool is_cut(int first, int first_query, int count, int length, int window) {
  if (first + 64 > length) return true;
  return window >= 0 &&
         (first_query + count - 1 - first > window || first + 63 - first_query > window);
}

cudaError_t launch_local_attention_f32(const LocalAttention& args, cudaStream_t stream);

}  // namespace system1
