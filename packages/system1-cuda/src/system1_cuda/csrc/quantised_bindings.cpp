// As bindings.cpp: the operators that give rows in FP8 with a scale each.

#include <torch/csrc/stable/library.h>

#include <optional>
#include <tuple>

#include "tensors.h"

namespace {

using namespace system1::tensors;

// Room for rows [rows, width] in FP8 and their scales.
std::tuple<Tensor, Tensor> empty_fp8(const Tensor& like, int64_t rows, int64_t width) {
  STD_TORCH_CHECK(width % 8 == 0 && width <= 32768, "width ", width,
                  " must be a multiple of 8, at most 32768");
  return {torch::stable::new_empty(like, {rows, width}, ScalarType::Float8_e4m3fn),
          torch::stable::new_empty(like, {rows}, ScalarType::Float)};
}

system1::Fp8Rows fp8_of(const Tensor& values, const Tensor& scales) {
  return {static_cast<uint8_t*>(values.mutable_data_ptr()),
          static_cast<float*>(scales.mutable_data_ptr())};
}

void check_bf16(const Tensor& tensor, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == ScalarType::BFloat16, name, " must be bfloat16");
}

std::tuple<Tensor, Tensor> quantise_rows(const Tensor& x) {
  const DeviceGuard guard(x.get_device_index());
  STD_TORCH_CHECK(x.is_cuda() && x.dim() == 2 && x.stride(1) == 1,
                  "x must be [rows, width] on CUDA, rows contiguous");
  const auto [values, scales] = empty_fp8(x, x.size(0), x.size(1));
  const system1::QuantiseRows args{.x = x.const_data_ptr(),
                                   .out = fp8_of(values, scales),
                                   .x_stride = x.stride(0),
                                   .rows = x.size(0),
                                   .width = static_cast<int>(x.size(1)),
                                   .dtype = dtype_of(x)};
  check_launch(system1::launch_quantise_rows(args, stream_of(x)), "quantise_rows");
  return {values, scales};
}

std::tuple<Tensor, Tensor> silu_mul_quantised(const Tensor& gate_up) {
  const DeviceGuard guard(gate_up.get_device_index());
  check_rows(gate_up, "gate_up");
  check_bf16(gate_up, "gate_up");
  STD_TORCH_CHECK(gate_up.dim() == 2 && gate_up.size(1) % 2 == 0,
                  "gate_up must be [rows, 2 * width]");
  const int64_t width = gate_up.size(1) / 2;
  const auto [values, scales] = empty_fp8(gate_up, gate_up.size(0), width);
  const system1::SiluMulQuantised args{.gate_up = gate_up.const_data_ptr(),
                                       .out = fp8_of(values, scales),
                                       .rows = gate_up.size(0),
                                       .width = static_cast<int>(width)};
  check_launch(system1::launch_silu_mul_quantised(args, stream_of(gate_up)), "silu_mul_quantised");
  return {values, scales};
}

// Values, scales, the normed rows (none of them unless they are kept) and the sum.
std::tuple<Tensor, Tensor, Tensor, Tensor> norm_quantised(const Tensor& x,
                                                          const std::optional<Tensor>& residual,
                                                          const Tensor& weight, double eps,
                                                          double offset, bool keep) {
  const DeviceGuard guard(x.get_device_index());
  check_rows(x, "x");
  check_bf16(x, "x");
  check_bf16(weight, "weight");
  STD_TORCH_CHECK(x.dim() == 2 && x.size(1) <= 8192, "x must be [rows, at most 8192]");
  check_width(weight, x.size(1), "weight");
  const auto [values, scales] = empty_fp8(x, x.size(0), x.size(1));
  const Tensor normed = torch::stable::new_empty(x, {keep ? x.size(0) : 0, x.size(1)});
  const Tensor summed =
      torch::stable::new_empty(x, {residual.has_value() ? x.size(0) : 0, x.size(1)});
  system1::RmsNormQuantised args{.x = x.const_data_ptr(),
                                 .residual = nullptr,
                                 .weight = weight.const_data_ptr(),
                                 .normed = keep ? normed.mutable_data_ptr() : nullptr,
                                 .summed = nullptr,
                                 .out = fp8_of(values, scales),
                                 .rows = x.size(0),
                                 .width = static_cast<int>(x.size(1)),
                                 .eps = static_cast<float>(eps),
                                 .offset = static_cast<float>(offset)};
  if (residual.has_value()) {
    check_rows(*residual, "residual");
    check_bf16(*residual, "residual");
    STD_TORCH_CHECK(residual->numel() == x.numel(), "residual must have x's shape");
    args.residual = residual->const_data_ptr();
    args.summed = summed.mutable_data_ptr();
  }
  check_launch(system1::launch_rms_norm_quantised(args, stream_of(x)), "rms_norm_quantised");
  return {values, scales, normed, summed};
}

std::tuple<Tensor, Tensor, Tensor> rms_norm_quantised(const Tensor& x, const Tensor& weight,
                                                      double eps, double offset, bool keep) {
  const auto [values, scales, normed, summed] =
      norm_quantised(x, std::nullopt, weight, eps, offset, keep);
  return {values, scales, normed};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> add_rms_norm_quantised(const Tensor& x,
                                                                  const Tensor& residual,
                                                                  const Tensor& weight, double eps,
                                                                  double offset, bool keep) {
  return norm_quantised(x, residual, weight, eps, offset, keep);
}

std::tuple<Tensor, Tensor> gated_rms_norm_quantised(const Tensor& x, const Tensor& gate,
                                                    const Tensor& weight, double eps) {
  const DeviceGuard guard(x.get_device_index());
  const system1::Heads heads = heads_of(x, "x");
  const int64_t width = x.size(2);
  check_bf16(x, "x");
  check_bf16(gate, "gate");
  check_bf16(weight, "weight");
  check_width(weight, width, "weight");
  STD_TORCH_CHECK(width == 64 || width == 128 || width == 256, "width ", width,
                  " must be 64, 128 or 256");
  STD_TORCH_CHECK(x.size(1) * width <= 8192, "heads of a token must hold at most 8192 values");
  const system1::Heads gates = heads_of(gate, "gate");
  STD_TORCH_CHECK(gate.numel() == x.numel() && gate.size(2) == width, "gate must have x's shape");
  const auto [values, scales] = empty_fp8(x, x.size(0), x.size(1) * width);
  const system1::GatedRmsNormQuantised args{.x = heads,
                                            .gate = gates,
                                            .weight = weight.const_data_ptr(),
                                            .out = fp8_of(values, scales),
                                            .tokens = x.size(0),
                                            .heads = static_cast<int>(x.size(1)),
                                            .width = static_cast<int>(width),
                                            .eps = static_cast<float>(eps)};
  check_launch(system1::launch_gated_rms_norm_quantised(args, stream_of(x)),
               "gated_rms_norm_quantised");
  return {values, scales};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(system1, library) {
  library.def("quantise_rows(Tensor x) -> (Tensor, Tensor)");
  library.def("silu_mul_quantised(Tensor gate_up) -> (Tensor, Tensor)");
  library.def(
      "rms_norm_quantised(Tensor x, Tensor weight, float eps, float offset, bool keep)"
      " -> (Tensor, Tensor, Tensor)");
  library.def(
      "add_rms_norm_quantised(Tensor x, Tensor residual, Tensor weight, float eps, float offset,"
      " bool keep) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "gated_rms_norm_quantised(Tensor x, Tensor gate, Tensor weight, float eps)"
      " -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(system1, CUDA, library) {
  library.impl("quantise_rows", TORCH_BOX(&quantise_rows));
  library.impl("silu_mul_quantised", TORCH_BOX(&silu_mul_quantised));
  library.impl("rms_norm_quantised", TORCH_BOX(&rms_norm_quantised));
  library.impl("add_rms_norm_quantised", TORCH_BOX(&add_rms_norm_quantised));
  library.impl("gated_rms_norm_quantised", TORCH_BOX(&gated_rms_norm_quantised));
}
