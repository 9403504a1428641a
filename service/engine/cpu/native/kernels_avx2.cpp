#include "isa_avx2.h"
#include "vector_kernels.h"

namespace dragoman {

const Kernels avx2_kernels = kernels<Avx2>("avx2");

}  // namespace dragoman
