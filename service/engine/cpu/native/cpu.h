// Which instruction sets this CPU has, and which of them its system lets programs use.
#pragma once

#include "kernels.h"

namespace dragoman {

// The kernels of a set, or null if it is unknown or this machine cannot run it; an empty name means the best there is.
const Kernels* find_kernels(const char* name);

}  // namespace dragoman
