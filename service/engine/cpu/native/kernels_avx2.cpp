#include "isa_avx2.h"
#include "vector_kernels.h"

const dragoman::Kernels dragoman::avx2_kernels = dragoman::kernels<dragoman::Avx2>("avx2");
