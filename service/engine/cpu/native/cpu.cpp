// Which instruction sets this CPU has, and which of them its system lets programs use.
#include "kernels.h"

#include <cpuid.h>
#include <string.h>

namespace dragoman {
namespace {

struct CpuFeatures {
  bool avx2, avxvnni, avx512vnni;
};

// Bits of CPUID (Intel's manual, volume 2A) and of XCR0 (volume 1, chapter 13).
constexpr uint32_t kFma = 1u << 12, kOsxsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;           // 1, ECX
constexpr uint32_t kAvx2 = 1u << 5, kAvx512f = 1u << 16, kAvx512dq = 1u << 17, kAvx512bw = 1u << 30,  // 7, EBX
    kAvx512vl = 1u << 31;
constexpr uint32_t kAvx512Vnni = 1u << 11;                // 7, ECX
constexpr uint32_t kAvxVnni = 1u << 4;                    // 7.1, EAX
constexpr uint32_t kSavesAvx = 0x6, kSavesAvx512 = 0xe6;  // registers that the system saves when tasks take turns

CpuFeatures detect() {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return {};
  constexpr uint32_t needed = kFma | kOsxsave | kAvx | kF16c;
  if ((ecx & needed) != needed) return {};
  uint32_t saved, high;
  asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if ((saved & kSavesAvx) != kSavesAvx) return {};
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return {};
  CpuFeatures found = {};
  found.avx2 = ebx & kAvx2;
  constexpr uint32_t wide = kAvx512f | kAvx512dq | kAvx512bw | kAvx512vl;
  found.avx512vnni =
      found.avx2 && (ebx & wide) == wide && (ecx & kAvx512Vnni) && (saved & kSavesAvx512) == kSavesAvx512;
  const uint32_t last_leaf = eax;
  if (last_leaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) found.avxvnni = found.avx2 && (eax & kAvxVnni);
  return found;
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  const CpuFeatures cpu = detect();
  const struct {
    bool can_run;
    const Kernels* kernels;
  } best_first[] = {
      {cpu.avx512vnni, &avx512vnni_kernels},
      {cpu.avxvnni, &avxvnni_kernels},
      {cpu.avx2, &avx2_kernels},
      {true, &plain_kernels},
  };
  for (const auto& set : best_first) {
    if (set.can_run && (!*name || strcmp(name, set.kernels->name) == 0)) return set.kernels;
  }
  return nullptr;
}

}  // namespace dragoman
