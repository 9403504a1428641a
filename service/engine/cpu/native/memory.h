// Memory that can say no: aligned arrays whose growth returns false where there is no room, and mapped files.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace dragoman {

enum Status : int32_t { kOk = 0, kNoMemory = 1, kWrongArgument = 2 };

constexpr size_t kAlignment = 64;              // bytes: a cache line, and the widest vector
constexpr size_t kHugePage = size_t{2} << 20;  // larger arrays lie in huge pages, where the system has some

inline size_t round_up(size_t number, size_t multiple) { return (number + multiple - 1) / multiple * multiple; }

// An array of numbers or plain records, empty at first.  New elements are zero.
template <class T>
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { free(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }

  void swap(Array& other) {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
  }

  // Makes room for `size` elements, and for half as many more where there was some.  The first `kept` of those that
  // there are stay; the others are lost.
  [[nodiscard]] bool reserve(size_t size, size_t kept = 0) {
    if (size <= capacity_) return true;
    const size_t wanted = capacity_ ? size + size / 2 : size;
    if (wanted > (SIZE_MAX - 2 * kHugePage) / sizeof(T)) return false;
    size_t bytes = wanted * sizeof(T);
    const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    bytes = round_up(bytes, alignment);
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes) != 0) return false;
    if (alignment == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
    if (kept) memcpy(memory, data_, kept * sizeof(T));
    memset(static_cast<char*>(memory) + kept * sizeof(T), 0, bytes - kept * sizeof(T));
    free(data_);
    data_ = static_cast<T*>(memory), capacity_ = wanted;
    return true;
  }

 private:
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

// A file to read, in huge pages where it lies in memory and the system has some: each step reads most of a model, and
// with pages of 4 KiB waits for where they lie.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (reserved_) munmap(reserved_, reserved_bytes_);
  }

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  // Maps all of a file, once: a wrong argument where there is none, no memory where the address space has no room.
  [[nodiscard]] Status map(int descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size <= 0) return kWrongArgument;
    const size_t size = static_cast<size_t>(file.st_size);
    void* reserved = mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED) return kNoMemory;
    reserved_ = reserved, reserved_bytes_ = size + kHugePage;
    void* start = reinterpret_cast<void*>(round_up(reinterpret_cast<uintptr_t>(reserved), kHugePage));
    if (mmap(start, size, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
      return errno == ENOMEM ? kNoMemory : kWrongArgument;
    }
    constexpr int collapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers lack
    madvise(start, size, MADV_HUGEPAGE), madvise(start, size, collapse);
    data_ = static_cast<const uint8_t*>(start), size_ = size;
    return kOk;
  }

 private:
  void* reserved_ = nullptr;
  const uint8_t* data_ = nullptr;
  size_t reserved_bytes_ = 0, size_ = 0;
};

}  // namespace dragoman
