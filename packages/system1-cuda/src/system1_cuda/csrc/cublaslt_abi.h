// The few declarations of cuBLASLt that gemm.cpp needs.
//
// Written from the public documentation ("cuBLAS, chapter 3: Using the cuBLASLt API", CUDA 12.9 and
// 13.0; names and values are the library's ABI, the same in cuBLAS 12 and 13), because neither CI nor
// a user's machine need have its headers. The library is the one that torch has loaded already.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace system1::cublaslt {

using Handle = void*;
using Descriptor = void*;
using Layout = void*;
using Preference = void*;

// cublasStatus_t
constexpr int kSuccess = 0;

// cudaDataType
constexpr int kFloat32 = 0;
constexpr int kFloat16 = 2;
constexpr int kBFloat16 = 14;
constexpr int kFloat8E4M3 = 28;

// cublasComputeType_t: CUBLAS_COMPUTE_32F
constexpr int kCompute32F = 68;

// cublasOperation_t: CUBLAS_OP_T
constexpr int32_t kTransposed = 1;

// cublasLtMatmulDescAttributes_t
constexpr int kTransA = 3;
constexpr int kEpilogue = 7;
constexpr int kBiasPointer = 8;
constexpr int kScalePointerA = 17;
constexpr int kScalePointerB = 18;
constexpr int kFastAccumulation = 25;
constexpr int kBiasDataType = 26;
constexpr int kScaleModeA = 31;
constexpr int kScaleModeB = 32;

// cublasLtEpilogue_t: CUBLASLT_EPILOGUE_BIAS
constexpr uint32_t kEpilogueBias = 4;

// cublasLtMatmulMatrixScale_t: CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, of CUDA 12.9 on
constexpr int32_t kScaleOuterVector = 3;

// cublasLtMatmulPreferenceAttributes_t
constexpr int kMaxWorkspaceBytes = 1;
constexpr int kReductionSchemes = 3;
constexpr int kAlignmentA = 5;
constexpr int kAlignmentB = 6;
constexpr int kAlignmentC = 7;
constexpr int kAlignmentD = 8;

// cublasLtReductionScheme_t: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, partial sums in float32
constexpr uint32_t kReduceInFloat32 = 2;

// cublasLtMatmulAlgo_t: opaque, may be copied and kept for use with the same version.
struct Algorithm {
  uint64_t words[8];
};

// cublasLtMatmulHeuristicResult_t
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

using GetVersion = size_t (*)();
using Create = int (*)(Handle*);
using DescriptorCreate = int (*)(Descriptor*, int compute_type, int scale_type);
using Destroy = int (*)(void*);
using SetAttribute = int (*)(void*, int attribute, const void* value, size_t bytes);
using LayoutCreate = int (*)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t stride);
using PreferenceCreate = int (*)(Preference*);
using GetHeuristic = int (*)(Handle, Descriptor, Layout a, Layout b, Layout c, Layout d, Preference,
                             int wanted, Heuristic* results, int* found);
using Matmul = int (*)(Handle, Descriptor, const void* alpha, const void* a, Layout a_layout,
                       const void* b, Layout b_layout, const void* beta, const void* c,
                       Layout c_layout, void* d, Layout d_layout, const Algorithm*, void* workspace,
                       size_t workspace_bytes, cudaStream_t);

}  // namespace system1::cublaslt
