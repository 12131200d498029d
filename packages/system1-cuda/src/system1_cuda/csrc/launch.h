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
  float* q;                // [tokens, key_heads, width]
  float* k;
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
  Dtype dtype;  // of qkv, b, a, conv_weight, v and beta
  Dtype a_log_dtype;
  Dtype dt_bias_dtype;
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

cudaError_t launch_row_norm(const RowNorm& args, cudaStream_t stream);
cudaError_t launch_gated_rms_norm(const GatedRmsNorm& args, cudaStream_t stream);
cudaError_t launch_gated_product(const GatedProduct& args, cudaStream_t stream);
cudaError_t launch_rotary(const Rotary& args, cudaStream_t stream);
cudaError_t launch_norm_rope(const NormRope& args, cudaStream_t stream);
cudaError_t launch_delta_inputs(const DeltaInputs& args, cudaStream_t stream);
cudaError_t launch_local_attention(const LocalAttention& args, cudaStream_t stream);

}  // namespace system1
