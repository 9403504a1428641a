// Copies rows of bytes between slots: those of many slots, in all arrays, in one launch (`CudaDevice.copy`).
//
// `make service/engine/cuda/copy.ptx` compiles it.  The driver turns that into the machine code of its card.

struct Rows {  // where rows lie: the first one, and how many bytes after it the next row, slot and array begin
  char* address;
  long long row, slot, array;
};

struct Slot {  // numbers of a source and a target, and the bytes of each row that are copied
  int source, target, width;
};

struct Copy {  // as `memory.py` fills it; less than the 4 KiB that a launch may be given
  Rows source, target;
  Slot slots[256];
};

// The grid is [rows of a slot, arrays, slots].  Sources and targets do not overlap.
extern "C" __global__ void copy_rows(const __grid_constant__ Copy copy) {
  const Rows &from = copy.source, &to = copy.target;
  const Slot& slot = copy.slots[blockIdx.z];
  const int row = blockIdx.x, array = blockIdx.y, width = slot.width;
  const char* source = from.address + row * from.row + slot.source * from.slot + array * from.array;
  char* target = to.address + row * to.row + slot.target * to.slot + array * to.array;
  if (((size_t)source | (size_t)target | width) % sizeof(uint4) == 0) {
    for (int item = threadIdx.x; item < width / (int)sizeof(uint4); item += blockDim.x)
      ((uint4*)target)[item] = ((const uint4*)source)[item];
  } else {
    for (int byte = threadIdx.x; byte < width; byte += blockDim.x) target[byte] = source[byte];
  }
}
