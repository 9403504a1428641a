// A CUDA runtime without a GPU: memory is the host's, kernels compute nothing, and everything that costs time is counted.
//
// With COUNTED_GPU_NO_CAPTURE, nothing can be recorded: a recording does not begin, or fails at its first kernel if the
// value is `kernel`.
//
// The counters lie in the file that COUNTED_GPU_FILE names, which several processes may share and tests read
// (`counters.py`).  COUNTED_GPU_GB says how much memory the card has, COUNTED_GPU_ARCH its compute capability as
// nvcc writes it (90: an H100), COUNTED_GPU_DRIVER the CUDA version of its driver (13000: 13.0).
//
// Copies and fills are real; they finish at once, so that code which does not wait for what it copies is not found out.

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "counters.h"

namespace {

// ---- counters

struct Counter {  // as `counters.py` reads it
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> amount;
  char name[112];  // empty: not in use
};
constexpr size_t kNumCounters = 8192;

struct Table {
  std::atomic<uint32_t> lock;
  uint32_t unused[31];
  Counter counters[kNumCounters];
};

Table* open_table() {
  const char* path = getenv("COUNTED_GPU_FILE");
  int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
  if (file >= 0 && ftruncate(file, sizeof(Table)) != 0) abort();
  int flags = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) abort();
  if (file >= 0) close(file);
  return static_cast<Table*>(memory);
}

Counter& counter_of(const std::string& name) {
  static Table* table = open_table();
  thread_local std::unordered_map<std::string, Counter*> known;
  auto found = known.find(name);
  if (found != known.end() && found->second->name[0]) return *found->second;
  while (table->lock.exchange(1)) usleep(1);
  Counter* counter = table->counters;
  std::string shortened = name.substr(0, sizeof(counter->name) - 1);
  while (counter->name[0] && shortened != counter->name) {
    if (++counter == table->counters + kNumCounters) abort();
  }
  strcpy(counter->name, shortened.c_str());
  table->lock = 0;
  known[name] = counter;
  return *counter;
}

void note(const std::string& name, size_t amount = 0) {
  Counter& counter = counter_of(name);
  counter.count++;
  counter.amount += amount;
}

// ---- the card

size_t setting(const char* name, double usual) {
  const char* value = getenv(name);
  return static_cast<size_t>(value ? atof(value) : usual);
}

int architecture() { return static_cast<int>(setting("COUNTED_GPU_ARCH", 90)); }

int driver_version() { return static_cast<int>(setting("COUNTED_GPU_DRIVER", 13000)); }

size_t total_memory() {
  const char* gigabytes = getenv("COUNTED_GPU_GB");
  return static_cast<size_t>((gigabytes ? atof(gigabytes) : 79.0) * (1ull << 30));
}

bool has_code() {  // for this card, in the machine code of onnxruntime-gpu 1.31: same major version, same or lower minor
  const int arch = architecture();
  for (int built : {75, 80, 86, 89, 90, 120}) {
    if (built / 10 == arch / 10 && built <= arch) return true;
  }
  return false;
}

int num_multiprocessors() {
  switch (architecture()) {
    case 75: return 40;  // T4
    case 89: return 58;  // L4
    default: return 132;  // H100
  }
}

int max_shared_memory() {
  switch (architecture()) {
    case 75: return 65536;
    case 89: return 101376;
    case 80: return 166912;
    default: return 232448;
  }
}

// What the last function that failed returned, until somebody asks.
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error) { return last_error = error; }

cudaError_t card_error() { return driver_version() < 13000 ? cudaErrorInsufficientDriver : cudaSuccess; }

// ---- memory

std::recursive_mutex mutex;
std::map<char*, size_t> device_memory, pinned_memory;  // where pieces begin, and their sizes
size_t allocated = 0;

bool lies_in(const std::map<char*, size_t>& pieces, const void* pointer) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto* byte = static_cast<char*>(const_cast<void*>(pointer));
  auto piece = pieces.upper_bound(byte);
  if (piece == pieces.begin()) return false;
  --piece;
  return byte < piece->first + piece->second;
}

std::string place(const void* pointer) {
  return lies_in(device_memory, pointer) ? "device" : lies_in(pinned_memory, pointer) ? "pinned" : "host";
}

void* new_pages(size_t size) {  // zeros, as fresh memory of a GPU need not be
  void* pages = mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

// ---- graphs

struct Graph {
  uint64_t kernels = 0;
  double microseconds = 0;
};
bool capturing = false, is_invalid = false;
void* captured_stream = nullptr;
Graph captured;
std::map<void*, Graph> graphs;

void* new_handle() {
  static std::atomic<uintptr_t> last{64};
  return reinterpret_cast<void*>(last += 64);
}

void forbid_in_capture(const std::string& what) {
  if (capturing) note("FORBIDDEN in a capture: " + what);
}

void work_in(cudaStream_t stream) {  // whatever is asked for is asked of a stream: one, or its order is not known
  if (capturing && stream != captured_stream) note("FORBIDDEN in a capture: work in another stream");
  static std::map<void*, std::string> names;
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto& name = names[stream];
  if (name.empty()) name = stream ? "work in stream " + std::to_string(names.size()) : "work in the default stream";
  note(name);
}

// ---- kernels

std::unordered_map<const void*, std::string>& kernel_names() {  // libraries register theirs before this one is set up
  static auto* names = new std::unordered_map<const void*, std::string>;
  return *names;
}

std::string readable(const std::string& mangled) {  // without template arguments and parameters
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  free(demangled);
  if (name.rfind("void ", 0) == 0) name = name.substr(5);
  std::string kept;
  int depth = 0;
  for (char letter : name) {
    if (letter == '(' && depth == 0 && kept.size() && kept.back() != ':') break;
    if (letter == '<' || letter == '(') depth++;
    if (depth == 0) kept += letter;
    if (letter == '>' || letter == ')') depth--;
  }
  return kept.substr(kept.rfind("::") == std::string::npos ? 0 : kept.rfind("::") + 2);
}

constexpr double kKernelMicroseconds = 2.5;  // of a small one

cudaError_t launch(const void* function, dim3 grid, dim3 block, size_t shared_memory, cudaStream_t stream) {
  work_in(stream);
  if (!has_code()) return cudaErrorNoKernelImageForDevice;
  if (capturing && getenv("COUNTED_GPU_NO_CAPTURE")) {
    is_invalid = true;
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  std::string name;
  {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    auto found = kernel_names().find(function);
    name = found == kernel_names().end() ? "unknown" : found->second;
  }
  bool is_valid = grid.x && grid.y && grid.z && block.x && block.y && block.z && block.x * block.y * block.z <= 1024 &&
                  grid.y <= 65535 && grid.z <= 65535 && shared_memory <= static_cast<size_t>(max_shared_memory());
  if (!is_valid) note("INVALID launch: " + name);
  counted_kernel("kernel", name.c_str(), kKernelMicroseconds);
  return cudaSuccess;
}

struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared_memory;
  void* stream;
};
thread_local std::vector<LaunchConfiguration> configurations;

}  // namespace

EXPORTED void counted_note(const char* name, size_t amount) { note(name, amount); }

EXPORTED void counted_kernel(const char* kind, const char* name, double microseconds) {
  std::string in_capture = capturing ? "captured " : "";
  note(in_capture + kind, static_cast<size_t>(1e3 * microseconds));
  note(in_capture + kind + ": " + name);
  if (capturing) {
    captured.kernels++;
    captured.microseconds += microseconds;
  } else {
    note("launch");
    note("busy ns", static_cast<size_t>(1e3 * microseconds));
  }
}

// ---- what compilers call

EXPORTED void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
EXPORTED void __cudaRegisterFatBinaryEnd(void**) {}
EXPORTED void __cudaUnregisterFatBinary(void**) {}
EXPORTED void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
EXPORTED void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  kernel_names()[host] = readable(name);
}
EXPORTED unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_memory, struct CUstream_st* stream) {
  configurations.push_back({grid, block, shared_memory, stream});
  return 0;
}
EXPORTED cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_memory, void* stream) {
  LaunchConfiguration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid, *block = last.block, *shared_memory = last.shared_memory, *static_cast<void**>(stream) = last.stream;
  return cudaSuccess;
}
EXPORTED cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
EXPORTED cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t shared_memory, cudaStream_t stream) {
  return launch(kernel, grid, block, shared_memory, stream);
}
EXPORTED cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared_memory, cudaStream_t stream) {
  return launch(function, grid, block, shared_memory, stream);
}
EXPORTED cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* function, void**) {
  return launch(function, configuration->gridDim, configuration->blockDim, configuration->dynamicSmemBytes, configuration->stream);
}
EXPORTED cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared_memory, cudaStream_t stream) {
  return launch(function, grid, block, shared_memory, stream);
}
EXPORTED cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  note("host function");
  function(data);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 64;
  attributes->ptxVersion = attributes->binaryVersion = architecture();
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* number, const void*, int, size_t, unsigned) {
  *number = 2;
  return cudaSuccess;
}

// ---- the device

EXPORTED cudaError_t cudaGetDeviceCount(int* number) {
  *number = 1;
  return card_error();
}
EXPORTED cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return card_error();
}
EXPORTED cudaError_t cudaSetDevice(int) { return card_error(); }
EXPORTED cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version();
  return cudaSuccess;
}
EXPORTED cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGetDeviceProperties(cudaDeviceProp* card, int) {
  memset(card, 0, sizeof *card);
  snprintf(card->name, sizeof card->name, "Counted GPU sm_%d", architecture());
  card->totalGlobalMem = total_memory();
  card->sharedMemPerBlock = 48 << 10;
  card->sharedMemPerBlockOptin = max_shared_memory();
  card->sharedMemPerMultiprocessor = max_shared_memory() + 1024;
  card->regsPerBlock = card->regsPerMultiprocessor = 65536;
  card->warpSize = 32;
  card->maxThreadsPerBlock = 1024;
  card->maxThreadsDim[0] = card->maxThreadsDim[1] = 1024, card->maxThreadsDim[2] = 64;
  card->maxGridSize[0] = 2147483647, card->maxGridSize[1] = card->maxGridSize[2] = 65535;
  card->major = architecture() / 10, card->minor = architecture() % 10;
  card->multiProcessorCount = num_multiprocessors();
  card->maxThreadsPerMultiProcessor = 2048;
  card->maxBlocksPerMultiProcessor = 32;
  card->l2CacheSize = 50 << 20;
  card->totalConstMem = 65536;
  card->unifiedAddressing = card->concurrentKernels = card->memoryPoolsSupported = 1;
  card->asyncEngineCount = 3;
  return card_error();
}
EXPORTED cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = architecture() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = architecture() % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = num_multiprocessors(); break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = max_shared_memory(); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = max_shared_memory() + 1024; break;
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
    case cudaDevAttrMemoryPoolsSupported: case cudaDevAttrCooperativeLaunch: *value = 1; break;
    default: *value = 0;
  }
  return card_error();
}

// ---- memory

EXPORTED cudaError_t cudaMalloc(void** pointer, size_t size) {
  if (card_error()) return card_error();
  forbid_in_capture("cudaMalloc");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (allocated + size > total_memory()) return failed(cudaErrorMemoryAllocation);
  *pointer = new_pages(size);
  if (!*pointer) return failed(cudaErrorMemoryAllocation);
  device_memory[static_cast<char*>(*pointer)] = size;
  allocated += size;
  note("allocate", size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaFree(void* pointer) {
  if (!pointer) return cudaSuccess;
  forbid_in_capture("cudaFree");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto piece = device_memory.find(static_cast<char*>(pointer));
  if (piece == device_memory.end()) return cudaErrorInvalidValue;
  note("free", piece->second);
  allocated -= piece->second;
  munmap(pointer, piece->second ? piece->second : 1);
  device_memory.erase(piece);
  return cudaSuccess;
}
EXPORTED bool counted_take(size_t size) {
  forbid_in_capture("cuMemCreate");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (allocated + size > total_memory()) return false;
  allocated += size;
  note("allocate", size);
  return true;
}
EXPORTED void counted_give(size_t size) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  allocated -= size;
  note("free", size);
}
EXPORTED void counted_mapped(void* address, size_t size) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  device_memory[static_cast<char*>(address)] = size;
}
EXPORTED bool counted_unmapped(void* address, size_t size) {
  forbid_in_capture("cuMemUnmap");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto piece = device_memory.find(static_cast<char*>(address));
  if (piece == device_memory.end() || piece->second != size) return false;
  device_memory.erase(piece);
  return true;
}
EXPORTED bool counted_holds(const void* address, size_t size) {
  const auto* last = static_cast<const char*>(address) + size - 1;
  return lies_in(device_memory, address) && lies_in(device_memory, last);
}
EXPORTED cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
EXPORTED cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t, cudaStream_t) {
  return cudaMalloc(pointer, size);
}
EXPORTED cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  forbid_in_capture("cudaHostAlloc");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  *pointer = new_pages(size);
  pinned_memory[static_cast<char*>(*pointer)] = size;
  note("allocate pinned", size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMallocHost(void** pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
EXPORTED cudaError_t cudaFreeHost(void* pointer) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto piece = pinned_memory.find(static_cast<char*>(pointer));
  if (piece == pinned_memory.end()) return cudaErrorInvalidValue;
  munmap(pointer, piece->second ? piece->second : 1);
  pinned_memory.erase(piece);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  *total_bytes = total_memory();
  *free_bytes = *total_bytes - allocated;
  return card_error();
}
EXPORTED cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  memset(attributes, 0, sizeof *attributes);
  const std::string where = place(pointer);
  attributes->type = where == "device"   ? cudaMemoryTypeDevice
                     : where == "pinned" ? cudaMemoryTypeHost
                                         : cudaMemoryTypeUnregistered;
  attributes->devicePointer = const_cast<void*>(pointer);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = static_cast<cudaMemPool_t>(new_handle());
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  memset(value, 0, sizeof(unsigned long long));
  return cudaSuccess;
}

// ---- copies
//
// Within the card's memory they are counted and not made: no kernel has put anything there, and a card would make them
// while the host goes on.

namespace {

// Counts a copy and returns whether it is to be made.
bool note_copy(const void* target, const void* source, size_t size, bool blocks) {
  const bool is_on_device = place(source) == "device" && place(target) == "device";
  // Memory of the host that is not pinned makes any copy wait.
  blocks = blocks || (!is_on_device && (place(source) == "host" || place(target) == "host"));
  const std::string what = place(source) + " to " + place(target);
  if (!is_on_device) forbid_in_capture("a copy from " + what);
  note(std::string(blocks ? "blocking copy " : "copy ") + what, size);
  if (capturing) {
    captured.kernels++;
    captured.microseconds += 2.0;
  } else {
    note("busy ns", 2000 + static_cast<size_t>(is_on_device ? 2e6 * size / 2.6e9 : 1e6 * size / 2.5e7));  // HBM, PCIe
  }
  return !is_on_device;
}

void fill(void* target, int value, size_t size) {
  note("fill", size);
  if (place(target) != "device") memset(target, value, size);
}

}  // namespace

EXPORTED void counted_copy(void* target, const void* source, size_t size, void* stream) {
  work_in(static_cast<cudaStream_t>(stream));
  forbid_in_capture("a copy between slots");
  note_copy(target, source, size, false);
}

EXPORTED cudaError_t cudaMemcpy(void* target, const void* source, size_t size, cudaMemcpyKind) {
  if (note_copy(target, source, size, true)) memcpy(target, source, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t size, cudaMemcpyKind, cudaStream_t stream) {
  work_in(stream);
  if (note_copy(target, source, size, false)) memcpy(target, source, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  work_in(stream);
  if (!note_copy(target, source, width * height, false)) return cudaSuccess;
  for (size_t row = 0; row < height; row++) {
    memcpy(static_cast<char*>(target) + row * target_pitch, static_cast<const char*>(source) + row * source_pitch, width);
  }
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemcpyFromSymbol(void* target, const void*, size_t size, size_t, cudaMemcpyKind) {
  forbid_in_capture("cudaMemcpyFromSymbol");
  note("blocking copy device to host", size);
  memset(target, 0, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemset(void* target, int value, size_t size) {
  fill(target, value, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemsetAsync(void* target, int value, size_t size, cudaStream_t stream) {
  work_in(stream);
  fill(target, value, size);
  return cudaSuccess;
}

// ---- streams, events and graphs

EXPORTED cudaError_t cudaDeviceSynchronize() {
  forbid_in_capture("cudaDeviceSynchronize");
  note("synchronise");
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t) {
  forbid_in_capture("cudaStreamSynchronize");
  note("synchronise");
  return cudaSuccess;
}
EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t) {
  forbid_in_capture("cudaEventSynchronize");
  note("synchronise");
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = static_cast<cudaStream_t>(new_handle());
  return card_error();
}
EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
EXPORTED cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = static_cast<cudaEvent_t>(new_handle());
  return cudaSuccess;
}
EXPORTED cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
EXPORTED cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0.1f;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const char* refused = getenv("COUNTED_GPU_NO_CAPTURE");
  if (refused && strcmp(refused, "kernel") != 0) return failed(cudaErrorStreamCaptureUnsupported);
  capturing = true;
  is_invalid = false;
  captured_stream = stream;
  captured = {};
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  if (!capturing) return failed(cudaErrorIllegalState);
  capturing = false;
  if (is_invalid) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = static_cast<cudaGraph_t>(new_handle());
  std::lock_guard<std::recursive_mutex> lock(mutex);
  graphs[*graph] = captured;
  note("graph captured", captured.kernels);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  *executable = static_cast<cudaGraphExec_t>(new_handle());
  graphs[*executable] = graphs[graph];
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  note("graph given back", graphs[executable].kernels);
  graphs.erase(executable);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  work_in(stream);
  std::lock_guard<std::recursive_mutex> lock(mutex);
  const Graph& graph = graphs[executable];
  note("graph launch", graph.kernels);
  note("busy ns", static_cast<size_t>(1e3 * graph.microseconds));
  return cudaSuccess;
}

// ---- the rest

EXPORTED cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
EXPORTED cudaError_t cudaPeekAtLastError() { return last_error; }
EXPORTED const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    default: return "cudaError";
  }
}
EXPORTED const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    default: return "an error";
  }
}
EXPORTED cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  if (result) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**, unsigned) {
  *library = static_cast<cudaLibrary_t>(new_handle());
  return cudaSuccess;
}
EXPORTED cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char*) {
  *kernel = static_cast<cudaKernel_t>(new_handle());
  return cudaSuccess;
}
