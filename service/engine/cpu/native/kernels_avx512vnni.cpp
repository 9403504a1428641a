// AVX-512 (F, BW, DQ, VL) with VNNI: 16 floats a vector and exact dot products of bytes.  What the functions return is
// said in isa_avx2.h.
#include <immintrin.h>
#include <string.h>

#include "vector_kernels.h"

namespace dragoman {
namespace {

struct Avx512Vnni {
  static constexpr int width = 16;
  static constexpr int levels = 127;
  static constexpr int most_dots = 0;                       // that are summed in 16 bits: none, 32 are as fast
  static constexpr int integer_rows = 14, float_rows = 14;  // of 32 registers, 28 hold sums
  static constexpr int wide_rows = 4;                       // so few rows take twice the vectors

  using Floats = __m512;
  using Integers = __m512i;

  static Floats broadcast(float x) { return _mm512_set1_ps(x); }
  static Floats load(const float* p) { return _mm512_loadu_ps(p); }
  static Floats load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static Floats load(const int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
  static void store(Half* p, Floats x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }  // a * b + c
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static Floats round(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Floats times_power(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
  static uint32_t above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static float sum(Floats x) { return _mm512_reduce_add_ps(x); }
  static float greatest(Floats x) { return _mm512_reduce_max_ps(x); }
  static void store_sums(const Floats* x, float* out) {
    const __m256 low = pairs(pairs(folded(x[0]), folded(x[2])), pairs(folded(x[1]), folded(x[3])));
    const __m256 high = pairs(pairs(folded(x[4]), folded(x[6])), pairs(folded(x[5]), folded(x[7])));
    const __m256 halves[] = {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
    _mm256_storeu_ps(out, _mm256_add_ps(halves[0], halves[1]));
  }

  static Integers magnitudes(Floats x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MAX));
  }
  static Integers max(Integers a, Integers b) { return _mm512_max_epi32(a, b); }
  static int32_t greatest(Integers x) { return _mm512_reduce_max_epi32(x); }
  static void store_levels(const float* values, Floats factor, Floats shift, int middle, uint8_t* out) {
    const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(fma(load(values), factor, shift)));
    const __m128i shifted = _mm_add_epi8(bytes, _mm_set1_epi8(static_cast<char>(middle)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), shifted);
  }

  static Integers load_bytes(const int8_t* p) { return _mm512_load_si512(p); }
  static Integers load_scaled(const int32_t* p, int32_t factor) {
    return _mm512_mullo_epi32(_mm512_loadu_si512(p), _mm512_set1_epi32(factor));
  }
  static Integers broadcast_four(const uint8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
  }
  // sums[i] + the products of four unsigned and four signed bytes.  The empty statement keeps GCC, which would read
  // ahead otherwise, from moving sums to memory.
  static Integers dot(Integers sums, Integers x, Integers weights) {
    sums = _mm512_dpbusd_epi32(sums, x, weights);
    asm("" : "+v"(sums));
    return sums;
  }
  static Floats to_floats(Integers x) { return _mm512_cvtepi32_ps(x); }

 private:
  static __m256 folded(Floats x) { return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); }
  static __m256 pairs(__m256 a, __m256 b) { return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)); }
};

}  // namespace

const Kernels avx512vnni_kernels = kernels<Avx512Vnni>("avx512vnni");

}  // namespace dragoman
