#include "zeno/kernels/cuda/attention/cudnn_graph.h"

#include "zeno/base/error.h"

namespace zeno::cuda {

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char words[1024] = "";
  cudnnGetLastErrorString(words, sizeof(words));
  fail(ErrorKind::internal, "[cudnn] {}: {}; {}", what, cudnnGetErrorString(status), words);
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &raw_), "create descriptor");
}

void CudnnDescriptor::reset() {
  if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
  raw_ = nullptr;
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  check_cudnn(cudnnBackendSetAttribute(raw_, name, type, count, values), "set attribute");
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  const cudnnBackendDescriptor_t raw = value.raw();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

void CudnnDescriptor::finalize(const char* what) { check_cudnn(cudnnBackendFinalize(raw_), what); }

CudnnTensorId CudnnGraph::add(const CudnnTensorSpec& spec, bool is_virtual, bool by_value) {
  const CudnnTensorId id = CudnnTensorId(tensors_.size()) + 1;
  const int64_t alignment = 16;
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &spec.type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, spec.dims.data());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, spec.strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  if (spec.ragged_offset != kNoTensor)
    tensor.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, at(spec.ragged_offset));
  tensor.finalize("tensor");
  tensors_.push_back(std::move(tensor));
  return id;
}

CudnnTensorId CudnnGraph::constant(float value) {
  const CudnnTensorId id = add({.dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}}, false, true);
  constants_.push_back({id, value});
  return id;
}

CudnnDescriptor& CudnnGraph::operation(cudnnBackendDescriptorType_t type) {
  return operations_.emplace_back(type);
}

CudnnDescriptor& CudnnGraph::parameters(cudnnBackendDescriptorType_t type) {
  return parameters_.emplace_back(type);
}

void CudnnGraph::matmul(CudnnTensorId a, CudnnTensorId b, CudnnTensorId c, const CudnnLengths& lengths) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  CudnnDescriptor& how = parameters(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  how.finalize("matmul parameters");
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c));
  op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  if (lengths.m != kNoTensor) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, at(lengths.m));
  if (lengths.n != kNoTensor) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, at(lengths.n));
  if (lengths.k != kNoTensor) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, at(lengths.k));
  op.finalize("matmul");
}

CudnnDescriptor& CudnnGraph::pointwise_parameters(cudnnPointwiseMode_t mode, cudnnDataType_t compute) {
  CudnnDescriptor& how = parameters(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  return how;
}

void CudnnGraph::add_pointwise(CudnnDescriptor& how, CudnnTensorId x, CudnnTensorId b, CudnnTensorId mask,
                               CudnnTensorId y) {
  how.finalize("pointwise parameters");
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  if (b != kNoTensor) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b));
  if (mask != kNoTensor) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(mask));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  op.finalize("pointwise");
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnTensorId x, CudnnTensorId y,
                           cudnnDataType_t compute) {
  add_pointwise(pointwise_parameters(mode, compute), x, kNoTensor, kNoTensor, y);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnTensorId x, CudnnTensorId b, CudnnTensorId y,
                           cudnnDataType_t compute) {
  add_pointwise(pointwise_parameters(mode, compute), x, b, kNoTensor, y);
}

void CudnnGraph::select(CudnnTensorId mask, CudnnTensorId x, CudnnTensorId otherwise, CudnnTensorId y) {
  add_pointwise(pointwise_parameters(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT), x, otherwise, mask, y);
}

void CudnnGraph::index(int64_t axis, CudnnTensorId x, CudnnTensorId y, cudnnDataType_t compute) {
  CudnnDescriptor& how = pointwise_parameters(CUDNN_POINTWISE_GEN_INDEX, compute);
  how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  add_pointwise(how, x, kNoTensor, kNoTensor, y);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t reduction, CudnnTensorId x, CudnnTensorId y) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  CudnnDescriptor& how = parameters(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction);
  how.finalize("reduction parameters");
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  op.finalize("reduction");
}

void CudnnGraph::reshape(CudnnTensorId x, CudnnTensorId y) {
  CudnnDescriptor& op = operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  op.finalize("reshape");
}

}  // namespace zeno::cuda
