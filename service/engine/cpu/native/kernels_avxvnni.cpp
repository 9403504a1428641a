// AVX-VNNI: AVX2 with exact dot products of bytes.
#include "isa_avx2.h"
#include "vector_kernels.h"

namespace dragoman {
namespace {

struct AvxVnni : Avx2 {
  static constexpr int levels = 127;
  static constexpr int most_dots = 0;

  static Integers dot(Integers sums, Integers x, Integers weights) {
    sums = _mm256_dpbusd_avx_epi32(sums, x, weights);
    asm("" : "+x"(sums));
    return sums;
  }
};

}  // namespace

const Kernels avxvnni_kernels = kernels<AvxVnni>("avxvnni");

}  // namespace dragoman
