// The functions of `Kernels` for one instruction set.
#pragma once

#include "attention.h"
#include "projection.h"

namespace dragoman {
namespace {

template <class Isa, class T>
constexpr CacheKernels cache_kernels() {
  return {sizeof(T), store<Isa, T>, transpose<Isa, T>, attend_columns<Isa, T>, attend_shared<Isa, T>};
}

template <class Isa>
constexpr Kernels kernels(const char* name) {
  return {name,
          Isa::levels,
          Isa::most_dots ? INT16_MAX / (2 * Isa::levels + 1) : kAnyWeightSum,
          quantize<Isa>,
          normalize<Isa>,
          activate<Isa>,
          recur<Isa>,
          embed<Isa>,
          product<Isa>,
          rank<Isa>,
          cache_kernels<Isa, Half>(),
          cache_kernels<Isa, float>()};
}

}  // namespace
}  // namespace dragoman
