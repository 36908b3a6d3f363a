// A cuDNN operation graph under construction, through the backend C API: tensors by number, operations in the
// order of the calls. Host only, nothing here touches a device; a finished graph goes to make_cudnn_plan().
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace zeno::cuda {

// Throws Error(internal) with cuDNN's words.
void check_cudnn(cudnnStatus_t status, const char* what);

// Owner of one backend descriptor.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor() { reset(); }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void finalize(const char* what);

 private:
  void reset();
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Always four dimensions: batch, head, row, column.
using CudnnDims = std::array<int64_t, 4>;
// The number of a tensor: its place in the graph and its unique id when the plan runs.
using CudnnTensorId = int64_t;
inline constexpr CudnnTensorId kNoTensor = 0;

struct CudnnTensorSpec {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  CudnnDims dims{}, strides{};
  CudnnTensorId ragged_offset = kNoTensor;  // where each batch entry starts, in elements
};

// Numbers of i32 tensors [batch, 1, 1, 1] that shorten a matmul's m, n or k per batch entry.
struct CudnnLengths {
  CudnnTensorId m = kNoTensor, n = kNoTensor, k = kNoTensor;
};

class CudnnGraph {
 public:
  // Memory bound when the plan runs.
  CudnnTensorId tensor(const CudnnTensorSpec& spec) { return add(spec, false, false); }
  // Exists inside the fused kernel only.
  CudnnTensorId intermediate(const CudnnTensorSpec& spec) { return add(spec, true, false); }
  // A float whose value is part of the graph.
  CudnnTensorId constant(float value);

  void matmul(CudnnTensorId a, CudnnTensorId b, CudnnTensorId c, const CudnnLengths& lengths = {});
  void pointwise(cudnnPointwiseMode_t mode, CudnnTensorId x, CudnnTensorId y,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  void pointwise(cudnnPointwiseMode_t mode, CudnnTensorId x, CudnnTensorId b, CudnnTensorId y,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  // y = mask ? x : otherwise
  void select(CudnnTensorId mask, CudnnTensorId x, CudnnTensorId otherwise, CudnnTensorId y);
  // y = the index along `axis` of each element of x's shape
  void index(int64_t axis, CudnnTensorId x, CudnnTensorId y, cudnnDataType_t compute);
  void reduce(cudnnReduceTensorOp_t op, CudnnTensorId x, CudnnTensorId y);
  void reshape(CudnnTensorId x, CudnnTensorId y);

  struct Constant {
    CudnnTensorId id;
    float value;
  };
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<CudnnDescriptor>& operations() const { return operations_; }

 private:
  CudnnTensorId add(const CudnnTensorSpec& spec, bool is_virtual, bool by_value);
  const CudnnDescriptor& at(CudnnTensorId id) const { return tensors_[size_t(id) - 1]; }
  CudnnDescriptor& operation(cudnnBackendDescriptorType_t type);
  CudnnDescriptor& parameters(cudnnBackendDescriptorType_t type);
  CudnnDescriptor& pointwise_parameters(cudnnPointwiseMode_t mode, cudnnDataType_t compute);
  // b and mask: kNoTensor where the mode takes none.
  void add_pointwise(CudnnDescriptor& how, CudnnTensorId x, CudnnTensorId b, CudnnTensorId mask,
                     CudnnTensorId y);

  std::vector<CudnnDescriptor> tensors_, parameters_, operations_;
  std::vector<Constant> constants_;
};

}  // namespace zeno::cuda
