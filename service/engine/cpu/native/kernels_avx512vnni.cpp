#include "isa_avx512vnni.h"
#include "vector_kernels.h"

namespace dragoman {

const Kernels avx512vnni_kernels = kernels<Avx512Vnni>("avx512vnni");

}  // namespace dragoman
