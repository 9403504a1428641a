#include "isa_avx512vnni.h"
#include "vector_kernels.h"

const dragoman::Kernels dragoman::avx512vnni_kernels = dragoman::kernels<dragoman::Avx512Vnni>("avx512vnni");
