// AVX2 with FMA and F16C: 8 floats a vector.  Products of bytes are summed in 16 bits here, which saturate: activations
// have 7 bits, and weights are packed so that no sum can reach that (`Kernels::most_weight_sum`).
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels.h"

namespace dragoman {
namespace {

struct Avx2 {
  static constexpr int width = 8;
  static constexpr int levels = 63;
  static constexpr int most_dots = kSummedDots;  // that are summed in 16 bits
  // Tiles whose sums fill the 16 registers and leave room for inputs and weights.
  static constexpr int integer_rows = 6, float_rows = 6;
  static constexpr int wide_rows = 2;  // so few rows take twice the vectors

  using Floats = __m256;
  using Integers = __m256i;

  static Floats broadcast(float x) { return _mm256_set1_ps(x); }
  static Floats load(const float* p) { return _mm256_loadu_ps(p); }
  static Floats load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static Floats load(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static void store(float* p, Floats x) { _mm256_storeu_ps(p, x); }
  static void store(Half* p, Floats x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }  // a * b + c
  // b where either is not a number: what may be none goes second
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static Floats round(Floats x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // x * 2^n for whole n from -126 to 127
  static Floats times_power(Floats x, Floats n) {
    const Integers exponents = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponents, 23)));
  }
  // bit i: a[i] > b[i]
  static uint32_t above(Floats a, Floats b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
  }
  static float sum(Floats x) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static float greatest(Floats x) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 quarter = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  // out[i] = the sum of x[i], for eight vectors
  static void store_sums(const Floats* x, float* out) {
    const Floats low = pairs(pairs(x[0], x[2]), pairs(x[1], x[3]));
    const Floats high = pairs(pairs(x[4], x[6]), pairs(x[5], x[7]));
    store(out, add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)));
  }

  // The bits of magnitudes as integers: not a number > infinite > all others.
  static Integers magnitudes(Floats x) {
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(INT32_MAX));
  }
  static Integers max(Integers a, Integers b) { return _mm256_max_epi32(a, b); }
  static int32_t greatest(Integers x) {
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
  }
  // 16 values times a factor, plus something that makes them numbers of 8 bits, rounded, plus `middle`
  static void store_levels(const float* values, Floats factor, Floats shift, int middle, uint8_t* out) {
    const Integers first = _mm256_cvtps_epi32(fma(load(values), factor, shift));
    const Integers second = _mm256_cvtps_epi32(fma(load(values + 8), factor, shift));
    const Integers words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const __m128i shifted = _mm_add_epi8(bytes, _mm_set1_epi8(static_cast<char>(middle)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), shifted);
  }

  static Integers load_bytes(const int8_t* p) { return _mm256_load_si256(reinterpret_cast<const Integers*>(p)); }
  static Integers load_scaled(const int32_t* p, int32_t factor) {
    return _mm256_mullo_epi32(_mm256_loadu_si256(reinterpret_cast<const Integers*>(p)), _mm256_set1_epi32(factor));
  }
  static Integers broadcast_four(const uint8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
  }
  // Sums of 16 bits, of pairs of products of unsigned and signed bytes.
  static Integers first_dot(Integers x, Integers weights) { return _mm256_maddubs_epi16(x, weights); }
  // An instruction and not its intrinsic: GCC would copy sums between registers, a fifth of all instructions.
  static Integers dot(Integers sums, Integers x, Integers weights) {
    const Integers products = _mm256_maddubs_epi16(x, weights);
    asm("vpaddw %1, %0, %0" : "+x"(sums) : "x"(products));
    return sums;
  }
  static Integers add_words(Integers sums, Integers words) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
  }
  static Floats to_floats(Integers x) { return _mm256_cvtepi32_ps(x); }

 private:
  // The sums of neighbours of a and b: a01 b01 a23 b23 | a45 b45 a67 b67.
  static Floats pairs(Floats a, Floats b) { return add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)); }
};

}  // namespace
}  // namespace dragoman
