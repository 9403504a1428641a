// In place of the library's own: a CPU that can run everything.
#include "kernels.h"

#include <string.h>

#include <initializer_list>

namespace dragoman {

const Kernels* find_kernels(const char* name) {
  for (const Kernels* kernels : {&avx2_kernels, &avxvnni_kernels, &avx512vnni_kernels}) {
    if (strcmp(name, kernels->name) == 0) return kernels;
  }
  return nullptr;
}

}  // namespace dragoman
