// What the torch bindings call: one launcher for each kernel, plain types only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace system1 {

enum class Dtype { f32, f16, bf16 };

// A [tokens, heads, width] tensor: its last dimension is contiguous, the others have strides.
struct Heads {
  const void* data;
  int64_t token_stride;
  int64_t head_stride;
};

struct RowNorm {
  const void* x;         // [rows, width]
  const void* residual;  // [rows, width] or null
  const void* weight;    // [width]
  const void* bias;      // [width] or null
  void* normed;          // [rows, width] in x's dtype
  void* summed;          // [rows, width] in the residual's dtype, or null
  int64_t rows;
  int width;
  float eps;
  float offset;  // added to the weight; RMSNorm only
  bool is_rms;
  Dtype x_dtype;
  Dtype residual_dtype;
  Dtype weight_dtype;
};

struct GatedRmsNorm {
  Heads x;
  Heads gate;
  const void* weight;  // [width]
  void* out;           // [tokens, heads, width], contiguous
  int64_t tokens;
  int heads;
  int width;
  float eps;
  Dtype dtype;
  Dtype weight_dtype;
};

struct GatedProduct {
  const void* x;  // [rows, 2 * width]
  void* out;      // [rows, width]
  int64_t rows;
  int width;
  bool is_gelu;  // else SiLU, rounded before the product
  Dtype dtype;
};

struct Rotary {
  Heads x;
  const float* cos;  // [tokens, half]
  const float* sin;
  void* out;  // [tokens, heads, width], contiguous
  int64_t tokens;
  int heads;
  int width;
  int half;
  Dtype dtype;
};

struct NormRope {
  Heads x;
  const void* weight;  // [width], stored minus one
  const void* cos;     // [tokens, turned] in x's dtype
  const void* sin;
  void* out;  // [tokens, heads, width], contiguous
  int64_t tokens;
  int heads;
  int width;
  int turned;  // dimensions that turn
  float eps;
  Dtype dtype;
  Dtype weight_dtype;
};

struct DeltaInputs {
  const void* qkv;  // [tokens, (2 * key_heads + value_heads) * width], rows with a stride
  const void* b;    // [tokens, value_heads], rows with a stride
  const void* a;
  const void* conv_weight;  // [channels, 4], the last tap for the current token
  const void* a_log;        // [value_heads]
  const void* dt_bias;
  const int64_t* history;  // [tokens, 3]: the row 1, 2 and 3 tokens back, -1 for none
  void* q;                 // [tokens, key_heads, width]
  void* k;
  void* v;    // [tokens, value_heads, width]
  float* g;   // [tokens, value_heads]
  void* beta;
  int64_t qkv_stride;
  int64_t b_stride;
  int64_t a_stride;
  int64_t tokens;
  int key_heads;
  int value_heads;
  int width;
  Dtype dtype;  // of all but g and the two below
  Dtype a_log_dtype;
  Dtype dt_bias_dtype;
};

struct TreeDeltaRule {
  const void* q;  // [tokens, key_heads, 128], heads contiguous
  const void* k;
  const void* v;     // [tokens, value_heads, 128], heads contiguous
  const float* g;    // [tokens, value_heads], log decay
  const void* beta;  // [tokens, value_heads]
  void* out;         // [tokens, value_heads, 128], contiguous
  // The tree (system1_torch/packed_tree.py).
  const int32_t* cu_seqlens;
  const int32_t* parent_index;
  const int32_t* chunks;
  const int32_t* chunk_starts;
  // Between the kernels, for each chunk and value head: [128, 64] twice, [64, 64] and [2, 64].
  void* solved_values;
  void* solved_keys;
  void* scores;
  float* decay;
  // From parent to child; null where no segment has a parent.
  float* states;  // [segments, value_heads, slices, 128 * 128 / slices]
  int* flags;     // [segments, value_heads, slices]
  int64_t q_stride;
  int64_t k_stride;
  int64_t v_stride;
  int64_t g_stride;
  int64_t beta_stride;
  int key_heads;
  int value_heads;
  int segments;
  int num_chunks;
  int slices;   // blocks that share a value head's columns: 2 or 4, in groups 2
  int stages;   // chunks in shared memory at a time: 1 or 2, in groups 1 or 3
  bool groups;  // states carried by warpgroup products: sm_90a alone
  Dtype dtype;
};

struct LocalAttention {
  Heads q;
  Heads k;
  Heads v;
  void* out;  // [tokens, heads, 64], contiguous
  const int32_t* cu_seqlens;
  int sequences;
  int max_seqlen;
  int heads;
  int window;  // -1 sees the whole sequence
  Dtype dtype;
};

struct Taps {
  const int16_t* weights;  // [taps, target] with `bits` fraction bits
  const int32_t* first;    // [target]
  int taps;
  int bits;
};

struct ImagePatches {
  const void* pixels;  // [height, width, 4] bytes
  void* between;       // [height, columns, 4] bytes; the pixels where no pass goes across
  unsigned char* patches;  // [rows * columns / patch_size^2, 3 * patch_size^2]
  Taps across;
  Taps down;
  int height;
  int width;
  int rows;
  int columns;
  int patch_size;
  int merge_size;
};

// Rows [rows, width] in FP8 E4M3 and their scales [rows].
struct Fp8Rows {
  uint8_t* values;
  float* scales;
};

struct QuantiseRows {
  const void* x;  // [rows, width], rows with a stride
  Fp8Rows out;
  int64_t x_stride;
  int64_t rows;
  int width;
  Dtype dtype;
};

// What ends in FP8 takes bfloat16 alone, as FP8 products give it.
struct SiluMulQuantised {
  const void* gate_up;  // [rows, 2 * width]
  Fp8Rows out;
  int64_t rows;
  int width;
};

struct RmsNormQuantised {
  const void* x;         // [rows, width]
  const void* residual;  // [rows, width] or null
  const void* weight;    // [width]
  void* normed;          // [rows, width] or null
  void* summed;          // [rows, width] or null
  Fp8Rows out;
  int64_t rows;
  int width;
  float eps;
  float offset;  // added to the weight
};

struct GatedRmsNormQuantised {
  Heads x;
  Heads gate;
  const void* weight;  // [width]
  Fp8Rows out;         // a token's heads are one row
  int64_t tokens;
  int heads;
  int width;
  float eps;
};

cudaError_t launch_row_norm(const RowNorm& args, cudaStream_t stream);
cudaError_t launch_gated_rms_norm(const GatedRmsNorm& args, cudaStream_t stream);
cudaError_t launch_gated_product(const GatedProduct& args, cudaStream_t stream);
cudaError_t launch_rotary(const Rotary& args, cudaStream_t stream);
cudaError_t launch_norm_rope(const NormRope& args, cudaStream_t stream);
cudaError_t launch_delta_inputs(const DeltaInputs& args, cudaStream_t stream);
cudaError_t launch_tree_delta_rule(const TreeDeltaRule& args, cudaStream_t stream);
cudaError_t launch_local_attention(const LocalAttention& args, cudaStream_t stream);
cudaError_t launch_image_patches(const ImagePatches& args, cudaStream_t stream);
cudaError_t launch_quantise_rows(const QuantiseRows& args, cudaStream_t stream);
cudaError_t launch_silu_mul_quantised(const SiluMulQuantised& args, cudaStream_t stream);
cudaError_t launch_rms_norm_quantised(const RmsNormQuantised& args, cudaStream_t stream);
cudaError_t launch_gated_rms_norm_quantised(const GatedRmsNormQuantised& args,
                                            cudaStream_t stream);

}  // namespace system1
