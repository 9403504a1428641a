// The reference that the kernels of the instruction sets are compared with.
#pragma once

#include "kernels.h"

namespace dragoman {

extern const Kernels plain_kernels;

}  // namespace dragoman
