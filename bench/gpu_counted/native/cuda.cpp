// The driver's virtual memory: addresses are reserved, and memory of the card is mapped to them and taken away again.
//
// Memory that was not mapped, or that nobody was given access to, cannot be read or written: the process ends.
//
// The engine's own kernel, which copies between slots, is counted; with COUNTED_GPU_COPIES it copies, too, compiled for
// this machine.
#include <cuda.h>
#include <sys/mman.h>
#include <vector_types.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "counters.h"

namespace {

thread_local dim3 blockIdx, blockDim;
thread_local uint3 threadIdx;
#include "../../../service/engine/cuda/copy.cu"

constexpr size_t kGranule = 2 << 20;  // as on all cards of today

struct Memory {
  size_t size;
  bool is_mapped;
};

std::mutex mutex;
std::map<void*, Memory*> mapped;  // by address

void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

bool is_whole(size_t size) { return size && size % kGranule == 0; }

}  // namespace

EXPORTED CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuMemGetAllocationGranularity(size_t* granule, const CUmemAllocationProp* memory, CUmemAllocationGranularity_flags) {
  *granule = kGranule;
  return memory->type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr, unsigned long long) {
  if (!is_whole(size)) return CUDA_ERROR_INVALID_VALUE;
  void* found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = reinterpret_cast<CUdeviceptr>(found);
  return found == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
EXPORTED CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  return munmap(at(address), size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* memory, unsigned long long) {
  const bool is_on_device = memory->location.type == CU_MEM_LOCATION_TYPE_DEVICE && memory->location.id == 0;
  if (!is_whole(size) || memory->type != CU_MEM_ALLOCATION_TYPE_PINNED || !is_on_device) return CUDA_ERROR_INVALID_VALUE;
  if (!counted_take(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(new Memory{size, false});
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
  auto* memory = reinterpret_cast<Memory*>(handle);
  if (offset || memory->size != size) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex);
  memory->is_mapped = true;
  mapped[at(address)] = memory;
  counted_mapped(at(address), size);
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {  // what is mapped stays until it is unmapped
  auto* memory = reinterpret_cast<Memory*>(handle);
  if (memory->is_mapped) return CUDA_SUCCESS;
  counted_give(memory->size);
  delete memory;
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t number) {
  if (number != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
  return mprotect(at(address), size, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  if (!counted_unmapped(at(address), size)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex);
  delete mapped[at(address)];
  mapped.erase(at(address));
  counted_give(size);
  // The next memory that is mapped here is another one.
  const bool is_gone = madvise(at(address), size, MADV_DONTNEED) == 0 && mprotect(at(address), size, PROT_NONE) == 0;
  return is_gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- the engine's kernel

EXPORTED CUresult cuModuleLoadData(CUmodule* module, const void* text) {
  const std::string argument = ".b8 copy_rows_param_0[" + std::to_string(sizeof(Copy)) + "]";
  *module = nullptr;
  return strstr(static_cast<const char*>(text), argument.c_str()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}
EXPORTED CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(copy_rows);
  return strcmp(name, "copy_rows") == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORTED CUresult cuLaunchKernel(CUfunction function, unsigned num_rows, unsigned num_arrays, unsigned num_slots, unsigned num_threads, unsigned, unsigned, unsigned, CUstream stream, void** arguments, void**) {
  const bool is_valid = num_rows && num_arrays && num_arrays < 65536 && num_slots && num_slots <= 256 && num_threads && num_threads <= 1024;
  if (function != reinterpret_cast<CUfunction>(copy_rows) || !is_valid) return CUDA_ERROR_INVALID_VALUE;
  const auto& copy = *static_cast<const Copy*>(arguments[0]);
  size_t size = 0;
  for (unsigned number = 0; number < num_slots; number++) {
    const Slot& slot = copy.slots[number];
    auto is_memory = [&](const Rows& rows, int place) {  // of the card: its first row and its last
      const char* first = rows.address + place * rows.slot;
      const char* last = first + (num_rows - 1) * rows.row + (num_arrays - 1) * rows.array;
      return counted_holds(first, slot.width) && counted_holds(last, slot.width);
    };
    if (!is_memory(copy.source, slot.source) || !is_memory(copy.target, slot.target)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    size += static_cast<size_t>(slot.width) * num_rows * num_arrays;
  }
  counted_copy(copy.target.address, copy.source.address, size, stream);
  if (!getenv("COUNTED_GPU_COPIES")) return CUDA_SUCCESS;
  blockDim = dim3(num_threads);
  for (blockIdx.z = 0; blockIdx.z < num_slots; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < num_arrays; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < num_rows; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < num_threads; threadIdx.x++) copy_rows(copy);
  return CUDA_SUCCESS;
}
