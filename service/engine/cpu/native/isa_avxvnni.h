// AVX-VNNI: AVX2 with exact dot products of bytes.
#pragma once

#include "isa_avx2.h"

namespace dragoman {
namespace {

struct AvxVnni : Avx2 {
  static constexpr int levels = 127, weight_levels = 127;
  static constexpr int fours = 1;
  static constexpr int integer_rows = 6;

  static Integers dot(Integers sums, const Integers* inputs, const Integers* weights) {
    sums = _mm256_dpbusd_avx_epi32(sums, *inputs, *weights);
    asm("" : "+x"(sums));
    return sums;
  }
};

}  // namespace
}  // namespace dragoman
