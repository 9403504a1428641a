// Which instruction sets this CPU has, and its system lets programs use.
#include <cpuid.h>
#include <string.h>

#include <initializer_list>

#include "kernels.h"

namespace dragoman {
namespace {

// F16C is leaf 1 of CPUID, ECX, bit 29, which not all compilers know by name; that the system saves its registers, it
// shares with AVX2, of which the compiler's function has asked XGETBV.
bool has_avx2() {
  uint32_t eax, ebx, ecx, edx;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
         (ecx & bit_F16C);
}

// Not all compilers know it by name: leaf 7.1 of CPUID, EAX, bit 4 (Intel's manual, volume 2A).
bool has_avxvnni() {
  uint32_t eax, ebx, ecx, edx;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & 1u << 4);
}

bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  for (const Kernels* kernels :
       {has_avx512vnni() ? &avx512vnni_kernels : nullptr, has_avxvnni() ? &avxvnni_kernels : nullptr,
        has_avx2() ? &avx2_kernels : nullptr}) {  // the best first
    if (kernels && (!*name || strcmp(name, kernels->name) == 0)) return kernels;
  }
  return nullptr;
}

}  // namespace dragoman
