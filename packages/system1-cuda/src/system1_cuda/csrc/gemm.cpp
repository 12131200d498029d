// Matrix products by cuBLASLt with a chosen algorithm, on torch's stable ABI.
//
// x [M, K] times weight [N, K] transposed, as torch's linear. An algorithm is ten integers: the eight
// words of cuBLASLt, the bytes of workspace, and whether FP8 sums in the tensor cores' own width.

#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "cublaslt_abi.h"

extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream);

namespace {

namespace lt = system1::cublaslt;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using torch::stable::accelerator::DeviceGuard;

constexpr size_t kAlgorithmWords = 10;
// Views into a larger weight or projection begin at 16 bytes, not at the 256 of an allocation.
constexpr uint32_t kAlignment = 16;

struct Library {
  lt::GetVersion version;
  lt::Create create;
  lt::DescriptorCreate descriptor_create;
  lt::Destroy descriptor_destroy;
  lt::SetAttribute descriptor_set;
  lt::LayoutCreate layout_create;
  lt::Destroy layout_destroy;
  lt::PreferenceCreate preference_create;
  lt::Destroy preference_destroy;
  lt::SetAttribute preference_set;
  lt::GetHeuristic heuristic;
  lt::Matmul matmul;
};

void* open_library() {
  // Torch's own copy first, by its name among what is loaded; a second one would cost memory.
  for (const int mode : {RTLD_LAZY | RTLD_NOLOAD, RTLD_LAZY}) {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      if (void* found = dlopen(name, mode)) return found;
    }
  }
  return nullptr;
}

template <typename Function>
void resolve(void* library, const char* name, Function& function, bool& is_complete) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  is_complete = is_complete && function != nullptr;
}

const Library* load_library() {
  static Library found;
  void* library = open_library();
  if (library == nullptr) return nullptr;
  bool is_complete = true;
  resolve(library, "cublasLtGetVersion", found.version, is_complete);
  resolve(library, "cublasLtCreate", found.create, is_complete);
  resolve(library, "cublasLtMatmulDescCreate", found.descriptor_create, is_complete);
  resolve(library, "cublasLtMatmulDescDestroy", found.descriptor_destroy, is_complete);
  resolve(library, "cublasLtMatmulDescSetAttribute", found.descriptor_set, is_complete);
  resolve(library, "cublasLtMatrixLayoutCreate", found.layout_create, is_complete);
  resolve(library, "cublasLtMatrixLayoutDestroy", found.layout_destroy, is_complete);
  resolve(library, "cublasLtMatmulPreferenceCreate", found.preference_create, is_complete);
  resolve(library, "cublasLtMatmulPreferenceDestroy", found.preference_destroy, is_complete);
  resolve(library, "cublasLtMatmulPreferenceSetAttribute", found.preference_set, is_complete);
  resolve(library, "cublasLtMatmulAlgoGetHeuristic", found.heuristic, is_complete);
  resolve(library, "cublasLtMatmul", found.matmul, is_complete);
  return is_complete ? &found : nullptr;
}

const Library* library_or_null() {
  static const Library* const found = load_library();
  return found;
}

const Library& library() {
  const Library* found = library_or_null();
  STD_TORCH_CHECK(found != nullptr, "found no cuBLASLt of CUDA 12 or 13");
  return *found;
}

void check(int status, const char* what) {
  STD_TORCH_CHECK(status == lt::kSuccess, what, ": cuBLAS status ", status);
}

// One for each device, for the life of the process; cuBLASLt's handles may be shared by threads.
lt::Handle handle_of(int32_t device) {
  static std::mutex mutex;
  static std::map<int32_t, lt::Handle> handles;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& handle = handles[device];
  if (handle == nullptr) check(library().create(&handle), "cublasLtCreate");
  return handle;
}

cudaStream_t stream_of(const Tensor& tensor) {
  void* stream = nullptr;
  const auto error = aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream);
  STD_TORCH_CHECK(error == 0, "torch has no current CUDA stream");
  return static_cast<cudaStream_t>(stream);
}

int type_of(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return lt::kFloat32;
    case ScalarType::Half: return lt::kFloat16;
    case ScalarType::BFloat16: return lt::kBFloat16;
    case ScalarType::Float8_e4m3fn: return lt::kFloat8E4M3;
    default: STD_TORCH_CHECK(false, "dtype must be float32, float16, bfloat16 or float8_e4m3fn");
  }
  return lt::kFloat32;
}

// Owns one of cuBLASLt's descriptions.
class Owned {
 public:
  explicit Owned(lt::Destroy destroy) : destroy_(destroy) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (value != nullptr) destroy_(value);
  }
  void* value = nullptr;

 private:
  lt::Destroy destroy_;
};

struct Operands {
  const Tensor& x;
  const Tensor& weight;
  const std::optional<Tensor>& bias;
  const std::optional<Tensor>& x_scale;
  const std::optional<Tensor>& weight_scale;
  ScalarType dtype;
  bool is_fast;
};

void check_vector(const Tensor& vector, int64_t length, const char* name) {
  STD_TORCH_CHECK(vector.is_cuda() && vector.is_contiguous() && vector.dim() == 1 &&
                      vector.size(0) == length,
                  name, " must have ", length, " values on CUDA");
}

void check_operands(const Operands& product) {
  const Tensor& x = product.x;
  const Tensor& weight = product.weight;
  STD_TORCH_CHECK(x.is_cuda() && weight.is_cuda() && x.dim() == 2 && weight.dim() == 2 &&
                      x.stride(1) == 1 && weight.stride(1) == 1 && x.size(1) == weight.size(1),
                  "x must be [M, K] and weight [N, K] on CUDA, contiguous in K");
  STD_TORCH_CHECK(x.get_device_index() == weight.get_device_index() &&
                      x.scalar_type() == weight.scalar_type(),
                  "x and weight must be of one device and dtype");
  const bool is_fp8 = x.scalar_type() == ScalarType::Float8_e4m3fn;
  STD_TORCH_CHECK(is_fp8 == product.x_scale.has_value() && is_fp8 == product.weight_scale.has_value(),
                  "FP8 operands, and they alone, need scales");
  if (is_fp8) {
    check_vector(*product.x_scale, x.size(0), "x_scale");
    check_vector(*product.weight_scale, weight.size(0), "weight_scale");
    STD_TORCH_CHECK(product.x_scale->scalar_type() == ScalarType::Float &&
                        product.weight_scale->scalar_type() == ScalarType::Float,
                    "scales must be float32");
  }
  if (product.bias.has_value()) {
    check_vector(*product.bias, weight.size(0), "bias");
    STD_TORCH_CHECK(product.bias->scalar_type() == product.dtype, "bias must be of the output's dtype");
  }
}

// Rows are the library's columns: it reads weight as [K, N], x as [K, M], and writes [N, M].
struct Product {
  explicit Product(const Operands& operands)
      : lt_(library()),
        descriptor(lt_.descriptor_destroy),
        weight(lt_.layout_destroy),
        x(lt_.layout_destroy),
        out(lt_.layout_destroy) {
    check_operands(operands);
    check(lt_.descriptor_create(&descriptor.value, lt::kCompute32F, lt::kFloat32), "descriptor");
    set(lt::kTransA, lt::kTransposed);
    const int out_type = type_of(operands.dtype);
    if (operands.bias.has_value()) {
      set(lt::kEpilogue, lt::kEpilogueBias);
      set(lt::kBiasPointer, operands.bias->const_data_ptr());
      set(lt::kBiasDataType, static_cast<int32_t>(out_type));
    }
    if (operands.x_scale.has_value()) {
      set(lt::kScalePointerA, operands.weight_scale->const_data_ptr());
      set(lt::kScalePointerB, operands.x_scale->const_data_ptr());
      set(lt::kFastAccumulation, static_cast<int8_t>(operands.is_fast));
      // Libraries before 12.9 do not know it; then no algorithm is found.
      is_supported = try_set(lt::kScaleModeA, lt::kScaleOuterVector) &&
                     try_set(lt::kScaleModeB, lt::kScaleOuterVector);
    }
    const int64_t rows = operands.x.size(0);
    const int64_t columns = operands.weight.size(0);
    lay_out(weight, operands.weight);
    lay_out(x, operands.x);
    check(lt_.layout_create(&out.value, out_type, columns, rows, columns), "layout");
  }

  const Library& lt_;
  Owned descriptor;
  Owned weight;
  Owned x;
  Owned out;
  bool is_supported = true;

 private:
  template <typename Value>
  bool try_set(int attribute, const Value& value) {
    return lt_.descriptor_set(descriptor.value, attribute, &value, sizeof(value)) == lt::kSuccess;
  }

  template <typename Value>
  void set(int attribute, const Value& value) {
    STD_TORCH_CHECK(try_set(attribute, value), "cuBLASLt refused attribute ", attribute);
  }

  void lay_out(Owned& layout, const Tensor& tensor) {
    const int64_t rows = tensor.size(0);
    const int64_t stride = rows == 1 ? tensor.size(1) : tensor.stride(0);
    check(lt_.layout_create(&layout.value, type_of(tensor.scalar_type()), tensor.size(1), rows, stride),
          "layout");
  }
};

std::vector<lt::Heuristic> heuristics(const Product& product, lt::Handle handle, int64_t count,
                                      int64_t workspace_bytes) {
  const Library& lt = product.lt_;
  Owned preference(lt.preference_destroy);
  check(lt.preference_create(&preference.value), "preference");
  const auto prefer = [&](int attribute, const auto& value) {
    check(lt.preference_set(preference.value, attribute, &value, sizeof(value)), "preference");
  };
  prefer(lt::kMaxWorkspaceBytes, static_cast<uint64_t>(workspace_bytes));
  prefer(lt::kReductionSchemes, lt::kReduceInFloat32);
  for (const int operand : {lt::kAlignmentA, lt::kAlignmentB, lt::kAlignmentC, lt::kAlignmentD}) {
    prefer(operand, kAlignment);
  }
  std::vector<lt::Heuristic> results(static_cast<size_t>(count));
  int found = 0;
  const int status = lt.heuristic(handle, product.descriptor.value, product.weight.value,
                                  product.x.value, product.out.value, product.out.value,
                                  preference.value, static_cast<int>(count), results.data(), &found);
  results.resize(status == lt::kSuccess ? static_cast<size_t>(found) : 0);
  return results;
}

int64_t gemm_version() {
  const Library* found = library_or_null();
  return found == nullptr ? 0 : static_cast<int64_t>(found->version());
}

std::vector<int64_t> gemm_algorithms(const Tensor& x, const Tensor& weight,
                                     const std::optional<Tensor>& bias,
                                     const std::optional<Tensor>& x_scale,
                                     const std::optional<Tensor>& weight_scale, ScalarType dtype,
                                     bool is_fast, int64_t count, int64_t workspace_bytes) {
  const DeviceGuard guard(x.get_device_index());
  const Product product({x, weight, bias, x_scale, weight_scale, dtype, is_fast});
  std::vector<int64_t> flat;
  if (!product.is_supported) return flat;
  const auto handle = handle_of(x.get_device_index());
  for (const auto& result : heuristics(product, handle, count, workspace_bytes)) {
    if (result.state != lt::kSuccess) continue;
    for (const uint64_t word : result.algorithm.words) flat.push_back(static_cast<int64_t>(word));
    flat.push_back(static_cast<int64_t>(result.workspace_bytes));
    flat.push_back(is_fast ? 1 : 0);
  }
  return flat;
}

Tensor gemm(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
            const std::optional<Tensor>& x_scale, const std::optional<Tensor>& weight_scale,
            ScalarType dtype, std::vector<int64_t> algorithm) {
  STD_TORCH_CHECK(algorithm.size() == kAlgorithmWords, "an algorithm is ", kAlgorithmWords,
                  " integers");
  const DeviceGuard guard(x.get_device_index());
  const Product product({x, weight, bias, x_scale, weight_scale, dtype, algorithm[9] != 0});
  const Tensor out = torch::stable::new_empty(x, {x.size(0), weight.size(0)}, dtype);
  if (x.size(0) == 0) return out;
  lt::Algorithm chosen{};
  std::copy_n(algorithm.begin(), 8, chosen.words);
  // From torch's allocator: ordered with the stream, and part of a graph's own memory.
  const auto bytes = static_cast<size_t>(algorithm[8]);
  std::optional<Tensor> workspace;
  if (bytes > 0) workspace = torch::stable::new_empty(x, {algorithm[8]}, ScalarType::Byte);
  const float one = 1.0f;
  const float zero = 0.0f;
  check(product.lt_.matmul(handle_of(x.get_device_index()), product.descriptor.value, &one,
                           weight.const_data_ptr(), product.weight.value, x.const_data_ptr(),
                           product.x.value, &zero, out.const_data_ptr(), product.out.value,
                           out.mutable_data_ptr(), product.out.value, &chosen,
                           workspace.has_value() ? workspace->mutable_data_ptr() : nullptr, bytes,
                           stream_of(x)),
        "cublasLtMatmul");
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(system1, library) {
  library.def("gemm_version() -> int");
  library.def(
      "gemm_algorithms(Tensor x, Tensor weight, Tensor? bias, Tensor? x_scale, Tensor? weight_scale,"
      " ScalarType dtype, bool is_fast, int count, int workspace_bytes) -> int[]");
  library.def(
      "gemm(Tensor x, Tensor weight, Tensor? bias, Tensor? x_scale, Tensor? weight_scale,"
      " ScalarType dtype, int[] algorithm) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(system1, CompositeExplicitAutograd, library) {
  library.impl("gemm_version", TORCH_BOX(&gemm_version));
}

STABLE_TORCH_LIBRARY_IMPL(system1, CUDA, library) {
  library.impl("gemm_algorithms", TORCH_BOX(&gemm_algorithms));
  library.impl("gemm", TORCH_BOX(&gemm));
}
