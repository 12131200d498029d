// The kernels as torch operators of the library "system1", on torch's stable ABI.
//
// Shapes and dtypes are checked in Python, where a call that no kernel covers goes to the reference;
// the checks here keep a wrong direct call from reading memory that is not its own.

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "tensors.h"

namespace {

using namespace system1::tensors;

system1::RowNorm row_norm(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                          double eps, const Tensor& normed) {
  const int64_t width = x.size(x.dim() - 1);
  check_rows(x, "x");
  check_width(weight, width, "weight");
  STD_TORCH_CHECK(width % 8 == 0 && width <= 8192, "width ", width,
                  " must be a multiple of 8, at most 8192");
  if (bias.has_value()) check_width(*bias, width, "bias");
  return {.x = x.const_data_ptr(),
          .residual = nullptr,
          .weight = weight.const_data_ptr(),
          .bias = bias.has_value() ? bias->const_data_ptr() : nullptr,
          .normed = normed.mutable_data_ptr(),
          .summed = nullptr,
          .rows = width == 0 ? 0 : x.numel() / width,
          .width = static_cast<int>(width),
          .eps = static_cast<float>(eps),
          .offset = 0.0f,
          .is_rms = false,
          .x_dtype = dtype_of(x),
          .residual_dtype = dtype_of(x),
          .weight_dtype = dtype_of(weight)};
}

std::tuple<Tensor, Tensor> with_residual(system1::RowNorm args, const Tensor& x,
                                         const Tensor& residual, const Tensor& normed) {
  check_rows(residual, "residual");
  STD_TORCH_CHECK(residual.numel() == x.numel(), "residual must have x's shape");
  const Tensor summed = torch::stable::empty_like(residual);
  args.residual = residual.const_data_ptr();
  args.summed = summed.mutable_data_ptr();
  args.residual_dtype = dtype_of(residual);
  check_launch(system1::launch_row_norm(args, stream_of(x)), "row_norm");
  return {normed, summed};
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                  double eps) {
  const DeviceGuard guard(x.get_device_index());
  const Tensor normed = torch::stable::empty_like(x);
  const auto args = row_norm(x, weight, bias, eps, normed);
  check_launch(system1::launch_row_norm(args, stream_of(x)), "layer_norm");
  return normed;
}

std::tuple<Tensor, Tensor> residual_layer_norm(const Tensor& x, const Tensor& residual,
                                               const Tensor& weight,
                                               const std::optional<Tensor>& bias, double eps) {
  const DeviceGuard guard(x.get_device_index());
  const Tensor normed = torch::stable::empty_like(x);
  return with_residual(row_norm(x, weight, bias, eps, normed), x, residual, normed);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, double offset) {
  const DeviceGuard guard(x.get_device_index());
  const Tensor normed = torch::stable::empty_like(x);
  auto args = row_norm(x, weight, std::nullopt, eps, normed);
  args.offset = static_cast<float>(offset);
  args.is_rms = true;
  check_launch(system1::launch_row_norm(args, stream_of(x)), "rms_norm");
  return normed;
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                        const Tensor& weight, double eps, double offset) {
  const DeviceGuard guard(x.get_device_index());
  const Tensor normed = torch::stable::empty_like(x);
  auto args = row_norm(x, weight, std::nullopt, eps, normed);
  args.offset = static_cast<float>(offset);
  args.is_rms = true;
  return with_residual(args, x, residual, normed);
}

Tensor gated_rms_norm(const Tensor& x, const Tensor& gate, const Tensor& weight, double eps) {
  const DeviceGuard guard(x.get_device_index());
  check_width(weight, x.size(2), "weight");
  const int64_t width = x.size(2);
  STD_TORCH_CHECK(width == 64 || width == 128 || width == 256, "width ", width,
                  " must be 64, 128 or 256");
  const Tensor out = empty_heads(x);
  const system1::GatedRmsNorm args{.x = heads_of(x, "x"),
                                   .gate = heads_of(gate, "gate"),
                                   .weight = weight.const_data_ptr(),
                                   .out = out.mutable_data_ptr(),
                                   .tokens = x.size(0),
                                   .heads = static_cast<int>(x.size(1)),
                                   .width = static_cast<int>(width),
                                   .eps = static_cast<float>(eps),
                                   .dtype = dtype_of(x),
                                   .weight_dtype = dtype_of(weight)};
  check_launch(system1::launch_gated_rms_norm(args, stream_of(x)), "gated_rms_norm");
  return out;
}

Tensor gated_product(const Tensor& x, bool is_gelu) {
  const DeviceGuard guard(x.get_device_index());
  check_rows(x, "x");
  const int64_t width = x.size(1) / 2;
  STD_TORCH_CHECK(x.dim() == 2 && x.size(1) % 16 == 0, "x must be [rows, 2 * width], width a ",
                  "multiple of 8");
  const Tensor out = torch::stable::new_empty(x, {x.size(0), width});
  const system1::GatedProduct args{.x = x.const_data_ptr(),
                                   .out = out.mutable_data_ptr(),
                                   .rows = x.size(0),
                                   .width = static_cast<int>(width),
                                   .is_gelu = is_gelu,
                                   .dtype = dtype_of(x)};
  check_launch(system1::launch_gated_product(args, stream_of(x)), "gated_product");
  return out;
}

Tensor geglu(const Tensor& x) { return gated_product(x, true); }

Tensor silu_mul(const Tensor& gate_up) { return gated_product(gate_up, false); }

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const DeviceGuard guard(x.get_device_index());
  check_rows(cos, "cos");
  check_rows(sin, "sin");
  const int64_t half = cos.size(1);
  STD_TORCH_CHECK(half % 8 == 0 && x.size(2) % 8 == 0 && 2 * half <= x.size(2),
                  "widths must be multiples of 8");
  const Tensor out = empty_heads(x);
  const system1::Rotary args{.x = heads_of(x, "x"),
                             .cos = static_cast<const float*>(cos.const_data_ptr()),
                             .sin = static_cast<const float*>(sin.const_data_ptr()),
                             .out = out.mutable_data_ptr(),
                             .tokens = x.size(0),
                             .heads = static_cast<int>(x.size(1)),
                             .width = static_cast<int>(x.size(2)),
                             .half = static_cast<int>(half),
                             .dtype = dtype_of(x)};
  check_launch(system1::launch_rotary(args, stream_of(x)), "rotary");
  return out;
}

Tensor norm_rope(const Tensor& x, const Tensor& weight, const Tensor& cos, const Tensor& sin,
                 double eps) {
  const DeviceGuard guard(x.get_device_index());
  const int64_t width = x.size(2);
  const int64_t turned = cos.size(1);
  check_width(weight, width, "weight");
  check_rows(cos, "cos");
  check_rows(sin, "sin");
  STD_TORCH_CHECK(width == 64 || width == 128 || width == 256, "width ", width,
                  " must be 64, 128 or 256");
  STD_TORCH_CHECK(turned % 16 == 0 && turned <= width && cos.numel() == x.size(0) * turned &&
                      sin.numel() == cos.numel(),
                  "cos and sin must be [tokens, a multiple of 16]");
  const Tensor out = empty_heads(x);
  const system1::NormRope args{.x = heads_of(x, "x"),
                               .weight = weight.const_data_ptr(),
                               .cos = cos.const_data_ptr(),
                               .sin = sin.const_data_ptr(),
                               .out = out.mutable_data_ptr(),
                               .tokens = x.size(0),
                               .heads = static_cast<int>(x.size(1)),
                               .width = static_cast<int>(width),
                               .turned = static_cast<int>(turned),
                               .eps = static_cast<float>(eps),
                               .dtype = dtype_of(x),
                               .weight_dtype = dtype_of(weight)};
  check_launch(system1::launch_norm_rope(args, stream_of(x)), "norm_rope");
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> delta_inputs(
    const Tensor& qkv, const Tensor& b, const Tensor& a, const Tensor& conv_weight,
    const Tensor& a_log, const Tensor& dt_bias, const Tensor& history, int64_t key_heads,
    int64_t key_dim) {
  const DeviceGuard guard(qkv.get_device_index());
  const int64_t tokens = qkv.size(0);
  const int64_t value_heads = a.size(1);
  check_rows(conv_weight, "conv_weight");
  check_rows(history, "history");
  check_width(a_log, value_heads, "A_log");
  check_width(dt_bias, value_heads, "dt_bias");
  STD_TORCH_CHECK(key_dim == 64 || key_dim == 128, "key_dim must be 64 or 128");
  STD_TORCH_CHECK(qkv.size(1) == (2 * key_heads + value_heads) * key_dim &&
                      conv_weight.numel() == 4 * qkv.size(1),
                  "qkv and conv_weight must have a channel for each dimension of each head");
  STD_TORCH_CHECK(history.scalar_type() == ScalarType::Long && history.numel() == 3 * tokens,
                  "history must be [tokens, 3] int64");
  STD_TORCH_CHECK(qkv.stride(1) == 1 && a.stride(1) == 1 && b.stride(1) == 1 &&
                      b.size(0) == tokens && a.size(0) == tokens && b.size(1) == value_heads,
                  "qkv, b and a must be [tokens, ...], contiguous in their last dimension");
  const Tensor q = torch::stable::new_empty(qkv, {tokens, key_heads, key_dim});
  const Tensor k = torch::stable::empty_like(q);
  const Tensor v = torch::stable::new_empty(qkv, {tokens, value_heads, key_dim});
  const Tensor g = torch::stable::new_empty(qkv, {tokens, value_heads}, ScalarType::Float);
  const Tensor beta = torch::stable::new_empty(qkv, {tokens, value_heads});
  const system1::DeltaInputs args{
      .qkv = qkv.const_data_ptr(),
      .b = b.const_data_ptr(),
      .a = a.const_data_ptr(),
      .conv_weight = conv_weight.const_data_ptr(),
      .a_log = a_log.const_data_ptr(),
      .dt_bias = dt_bias.const_data_ptr(),
      .history = static_cast<const int64_t*>(history.const_data_ptr()),
      .q = q.mutable_data_ptr(),
      .k = k.mutable_data_ptr(),
      .v = v.mutable_data_ptr(),
      .g = static_cast<float*>(g.mutable_data_ptr()),
      .beta = beta.mutable_data_ptr(),
      .qkv_stride = qkv.stride(0),
      .b_stride = b.stride(0),
      .a_stride = a.stride(0),
      .tokens = tokens,
      .key_heads = static_cast<int>(key_heads),
      .value_heads = static_cast<int>(value_heads),
      .width = static_cast<int>(key_dim),
      .dtype = dtype_of(qkv),
      .a_log_dtype = dtype_of(a_log),
      .dt_bias_dtype = dtype_of(dt_bias)};
  check_launch(system1::launch_delta_inputs(args, stream_of(qkv)), "delta_inputs");
  return {q, k, v, g, beta};
}

// A [tokens, heads, 128] tensor whose heads follow one another.
void check_heads_128(const Tensor& tensor, const char* name) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.dim() == 3 && tensor.size(2) == 128 &&
                      tensor.stride(2) == 1 && tensor.stride(1) == 128,
                  name, " must be [tokens, heads, 128] on CUDA with contiguous heads");
}

const int32_t* table_of(const Tensor& table, const char* name) {
  check_rows(table, name);
  STD_TORCH_CHECK(table.scalar_type() == ScalarType::Int, name, " must be int32");
  return static_cast<const int32_t*>(table.const_data_ptr());
}

Tensor tree_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g,
                       const Tensor& beta, const Tensor& cu_seqlens, const Tensor& parent_index,
                       const Tensor& chunks, const Tensor& chunk_starts, int64_t slices,
                       int64_t stages, bool groups) {
  const DeviceGuard guard(v.get_device_index());
  check_heads_128(q, "q");
  check_heads_128(k, "k");
  check_heads_128(v, "v");
  STD_TORCH_CHECK(slices == 2 || slices == (groups ? 1 : 4),
                  "slices must be 2, or 4, or 1 in groups");
  STD_TORCH_CHECK(g.scalar_type() == ScalarType::Float && g.stride(1) == 1 && beta.stride(1) == 1,
                  "g must be float32; g and beta contiguous in their last dimension");
  const int64_t heads = v.size(1);
  const int64_t segments = parent_index.size(0);
  const int64_t count = chunks.size(0);
  STD_TORCH_CHECK(cu_seqlens.size(0) == segments + 1 && chunk_starts.size(0) == segments + 1,
                  "the tree's tables must be of one number of segments");
  const int64_t kept = segments > 1 ? segments : 0;
  const Tensor out = empty_heads(v);
  const Tensor solved = torch::stable::new_empty(v, {2, count, heads, 128, 64});
  const Tensor scores = torch::stable::new_empty(v, {count, heads, 64, 64});
  const Tensor decay = torch::stable::new_empty(g, {count, heads, 2, 64});
  const Tensor states = torch::stable::new_empty(g, {kept, heads, 128, 128});
  const Tensor flags = torch::stable::new_empty(cu_seqlens, {kept, heads, slices});
  auto* solved_data = static_cast<char*>(solved.mutable_data_ptr());
  const system1::TreeDeltaRule args{
      .q = q.const_data_ptr(),
      .k = k.const_data_ptr(),
      .v = v.const_data_ptr(),
      .g = static_cast<const float*>(g.const_data_ptr()),
      .beta = beta.const_data_ptr(),
      .out = out.mutable_data_ptr(),
      .cu_seqlens = table_of(cu_seqlens, "cu_seqlens"),
      .parent_index = table_of(parent_index, "parent_index"),
      .chunks = table_of(chunks, "chunks"),
      .chunk_starts = table_of(chunk_starts, "chunk_starts"),
      .solved_values = solved_data,
      .solved_keys = solved_data + count * heads * 128 * 64 * 2,
      .scores = scores.mutable_data_ptr(),
      .decay = static_cast<float*>(decay.mutable_data_ptr()),
      .states = kept ? static_cast<float*>(states.mutable_data_ptr()) : nullptr,
      .flags = kept ? static_cast<int*>(flags.mutable_data_ptr()) : nullptr,
      .q_stride = q.stride(0),
      .k_stride = k.stride(0),
      .v_stride = v.stride(0),
      .g_stride = g.stride(0),
      .beta_stride = beta.stride(0),
      .key_heads = static_cast<int>(q.size(1)),
      .value_heads = static_cast<int>(heads),
      .segments = static_cast<int>(segments),
      .num_chunks = static_cast<int>(count),
      .slices = static_cast<int>(slices),
      .stages = static_cast<int>(stages),
      .groups = groups,
      .dtype = dtype_of(v)};
  check_launch(system1::launch_tree_delta_rule(args, stream_of(v)), "tree_delta_rule");
  return out;
}

Tensor local_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens,
                       int64_t max_seqlen, int64_t window) {
  const DeviceGuard guard(q.get_device_index());
  check_rows(cu_seqlens, "cu_seqlens");
  STD_TORCH_CHECK(cu_seqlens.scalar_type() == ScalarType::Int, "cu_seqlens must be int32");
  STD_TORCH_CHECK(q.size(2) == 64 && k.size(2) == 64 && v.size(2) == 64, "heads must be 64 wide");
  const Tensor out = empty_heads(q);
  const system1::LocalAttention args{
      .q = heads_of(q, "q"),
      .k = heads_of(k, "k"),
      .v = heads_of(v, "v"),
      .out = out.mutable_data_ptr(),
      .cu_seqlens = static_cast<const int32_t*>(cu_seqlens.const_data_ptr()),
      .sequences = static_cast<int>(cu_seqlens.size(0) - 1),
      .max_seqlen = static_cast<int>(max_seqlen),
      .heads = static_cast<int>(q.size(1)),
      .window = static_cast<int>(std::min(window, max_seqlen)),
      .dtype = dtype_of(q)};
  check_launch(system1::launch_local_attention(args, stream_of(q)), "local_attention");
  return out;
}

system1::Taps taps_of(const Tensor& weights, const Tensor& first, int64_t bits, int64_t target) {
  check_rows(weights, "weights");
  check_rows(first, "first");
  STD_TORCH_CHECK(weights.scalar_type() == ScalarType::Short && weights.dim() == 2 &&
                      weights.size(1) == target && first.scalar_type() == ScalarType::Int &&
                      first.numel() == target && bits > 0 && bits < 31,
                  "taps must be [taps, ", target, "] int16, their places int32");
  return {.weights = static_cast<const int16_t*>(weights.const_data_ptr()),
          .first = static_cast<const int32_t*>(first.const_data_ptr()),
          .taps = static_cast<int>(weights.size(0)),
          .bits = static_cast<int>(bits)};
}

Tensor image_patches(const Tensor& pixels, const std::optional<Tensor>& across_weights,
                     const std::optional<Tensor>& across_first, int64_t across_bits,
                     const Tensor& down_weights, const Tensor& down_first, int64_t down_bits,
                     int64_t patch_size, int64_t merge_size) {
  const DeviceGuard guard(pixels.get_device_index());
  check_rows(pixels, "pixels");
  STD_TORCH_CHECK(pixels.scalar_type() == ScalarType::Byte && pixels.dim() == 3 &&
                      pixels.size(2) == 4,
                  "pixels must be [height, width, 4] uint8");
  const int64_t rows = down_first.numel();
  const int64_t columns = across_first.has_value() ? across_first->numel() : pixels.size(1);
  const int64_t block = patch_size * merge_size;
  STD_TORCH_CHECK(patch_size > 0 && patch_size % 4 == 0 && merge_size > 0 && rows % block == 0 &&
                      columns % block == 0,
                  "sides must be multiples of patch_size * merge_size, patch_size one of 4");
  const int64_t area = patch_size * patch_size;
  const Tensor patches = torch::stable::new_empty(pixels, {rows * columns / area, 3 * area});
  system1::ImagePatches args{.pixels = pixels.const_data_ptr(),
                             .between = const_cast<void*>(pixels.const_data_ptr()),
                             .patches = static_cast<unsigned char*>(patches.mutable_data_ptr()),
                             .across = {},
                             .down = taps_of(down_weights, down_first, down_bits, rows),
                             .height = static_cast<int>(pixels.size(0)),
                             .width = static_cast<int>(pixels.size(1)),
                             .rows = static_cast<int>(rows),
                             .columns = static_cast<int>(columns),
                             .patch_size = static_cast<int>(patch_size),
                             .merge_size = static_cast<int>(merge_size)};
  std::optional<Tensor> between;
  if (across_weights.has_value() && across_first.has_value()) {
    between = torch::stable::new_empty(pixels, {pixels.size(0), columns, 4});
    args.between = between->mutable_data_ptr();
    args.across = taps_of(*across_weights, *across_first, across_bits, columns);
  }
  check_launch(system1::launch_image_patches(args, stream_of(pixels)), "image_patches");
  return patches;
}

}  // namespace

STABLE_TORCH_LIBRARY(system1, library) {
  library.def("layer_norm(Tensor x, Tensor weight, Tensor? bias, float eps) -> Tensor");
  library.def(
      "residual_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor? bias, float eps)"
      " -> (Tensor, Tensor)");
  library.def("rms_norm(Tensor x, Tensor weight, float eps, float offset) -> Tensor");
  library.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps, float offset)"
      " -> (Tensor, Tensor)");
  library.def("gated_rms_norm(Tensor x, Tensor gate, Tensor weight, float eps) -> Tensor");
  library.def("geglu(Tensor x) -> Tensor");
  library.def(
      "image_patches(Tensor pixels, Tensor? across_weights, Tensor? across_first,"
      " int across_bits, Tensor down_weights, Tensor down_first, int down_bits, int patch_size,"
      " int merge_size) -> Tensor");
  library.def("silu_mul(Tensor gate_up) -> Tensor");
  library.def("rotary(Tensor x, Tensor cos, Tensor sin) -> Tensor");
  library.def("norm_rope(Tensor x, Tensor weight, Tensor cos, Tensor sin, float eps) -> Tensor");
  library.def(
      "delta_inputs(Tensor qkv, Tensor b, Tensor a, Tensor conv_weight, Tensor A_log,"
      " Tensor dt_bias, Tensor history, int key_heads, int key_dim)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "tree_delta_rule(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor cu_seqlens,"
      " Tensor parent_index, Tensor chunks, Tensor chunk_starts, int slices, int stages,"
      " bool groups) -> Tensor");
  library.def(
      "local_attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, int max_seqlen,"
      " int window) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(system1, CUDA, library) {
  library.impl("image_patches", TORCH_BOX(&image_patches));
  library.impl("layer_norm", TORCH_BOX(&layer_norm));
  library.impl("residual_layer_norm", TORCH_BOX(&residual_layer_norm));
  library.impl("rms_norm", TORCH_BOX(&rms_norm));
  library.impl("add_rms_norm", TORCH_BOX(&add_rms_norm));
  library.impl("gated_rms_norm", TORCH_BOX(&gated_rms_norm));
  library.impl("geglu", TORCH_BOX(&geglu));
  library.impl("silu_mul", TORCH_BOX(&silu_mul));
  library.impl("rotary", TORCH_BOX(&rotary));
  library.impl("norm_rope", TORCH_BOX(&norm_rope));
  library.impl("delta_inputs", TORCH_BOX(&delta_inputs));
  library.impl("tree_delta_rule", TORCH_BOX(&tree_delta_rule));
  library.impl("local_attention", TORCH_BOX(&local_attention));
}
