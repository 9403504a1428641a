#include "isa_avxvnni.h"
#include "vector_kernels.h"

const dragoman::Kernels dragoman::avxvnni_kernels = dragoman::kernels<dragoman::AvxVnni>("avxvnni");
