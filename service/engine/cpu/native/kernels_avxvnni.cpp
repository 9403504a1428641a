#include "isa_avxvnni.h"
#include "vector_kernels.h"

namespace dragoman {

const Kernels avxvnni_kernels = kernels<AvxVnni>("avxvnni");

}  // namespace dragoman
