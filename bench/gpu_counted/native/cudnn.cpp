// cuDNN as its frontend calls it: execution plans are counted when they are built, and their runs.
#include <cstdint>
#include <cstdio>

#include "counters.h"

namespace {

struct Descriptor {
  int type;
};
constexpr int kExecutionPlan = 15;  // CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR minus none: cudnnBackendDescriptorType_t

}  // namespace

EXPORTED size_t cudnnGetVersion() { return 92800; }
EXPORTED size_t cudnnGetCudartVersion() { return 13000; }
EXPORTED const char* cudnnGetErrorString(int) { return "an error of cuDNN"; }
EXPORTED int cudnnCreate(void** handle) {
  *handle = handle;
  return 0;
}
EXPORTED int cudnnGetReductionWorkspaceSize(void*, void*, void*, void*, size_t* size) {
  *size = 0;
  return 0;
}
EXPORTED int cudnnGetReductionIndicesSize(void*, void*, void*, void*, size_t* size) {
  *size = 0;
  return 0;
}
EXPORTED int cudnnReduceTensor(...) {
  counted_kernel("kernel", "cudnnReduceTensor", 4);
  return 0;
}
EXPORTED int cudnnBackendCreateDescriptor(int type, Descriptor** descriptor) {
  *descriptor = new Descriptor{type};
  return 0;
}
EXPORTED int cudnnBackendDestroyDescriptor(Descriptor*) { return 0; }  // the frontend destroys some twice
EXPORTED int cudnnBackendSetAttribute(...) { return 0; }
EXPORTED int cudnnBackendFinalize(Descriptor* descriptor) {
  if (descriptor->type == kExecutionPlan) counted_note("plan", 0);
  return 0;
}
EXPORTED int cudnnBackendGetAttribute(Descriptor*, int, int type, int64_t wanted, int64_t* found, void* elements) {
  constexpr int kBackendDescriptor = 15, kInt64 = 3, kBoolean = 2, kInt32 = 23;  // cudnnBackendAttributeType_t
  int64_t number = 0;
  if (type == kBackendDescriptor) {
    number = 1;
  } else if (elements && wanted && (type == kInt64 || type == kBoolean || type == kInt32)) {
    number = 1;
    if (type == kInt64) *static_cast<int64_t*>(elements) = 0;
    if (type == kBoolean) *static_cast<bool*>(elements) = false;
    if (type == kInt32) *static_cast<int32_t*>(elements) = 0;
  }
  if (found) *found = number;
  return 0;
}
EXPORTED int cudnnBackendExecute(void*, Descriptor*, Descriptor*) {
  counted_kernel("kernel", "cuDNN plan", 6);
  return 0;
}
