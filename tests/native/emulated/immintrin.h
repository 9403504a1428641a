// Instructions that the CPU at hand does not have, for tests of the kernels that use them: 512 bits wide, and AVX-VNNI.
// SIMDe (Debian's libsimde-dev) has most of the former; what it lacks is done by halves, with AVX2.
#pragma once

#include_next <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifdef EMULATES_AVX512

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

namespace emulated {

template <class Half>
struct Halves {
  Half low, high;
};

// A vector whose halves are part(0) and part(1).
template <class Vector, class Part>
inline Vector joined(Part part) {
  const Halves<decltype(part(0))> halves = {part(0), part(1)};
  static_assert(sizeof(Vector) == sizeof halves, "halves of a vector");
  Vector vector;
  memcpy(&vector, &halves, sizeof vector);
  return vector;
}

template <class Half, class Vector>
inline Half half(const Vector& vector, int which) {
  Half found;
  memcpy(&found, reinterpret_cast<const char*>(&vector) + which * sizeof found, sizeof found);
  return found;
}

inline simde__m512 cvtph_ps(__m256i x) {
  return joined<simde__m512>([&](int i) { return _mm256_cvtph_ps(half<__m128i>(x, i)); });
}
inline __m256i cvtps_ph(simde__m512 x) {
  return joined<__m256i>([&](int i) { return _mm256_cvtps_ph(half<__m256>(x, i), _MM_FROUND_TO_NEAREST_INT); });
}
inline simde__m512 cvtepi32_ps(simde__m512i x) {
  return joined<simde__m512>([&](int i) { return _mm256_cvtepi32_ps(half<__m256i>(x, i)); });
}
inline simde__m512i cvtps_epi32(simde__m512 x) {
  return joined<simde__m512i>([&](int i) { return _mm256_cvtps_epi32(half<__m256>(x, i)); });
}
inline simde__m512i cvtepi8_epi32(__m128i x) {
  return joined<simde__m512i>([&](int i) { return _mm256_cvtepi8_epi32(i ? _mm_srli_si128(x, 8) : x); });
}
template <class Number, class Vector, class Function>
inline Number reduce(const Vector& vector, Function function) {
  Number found = half<Number>(vector, 0);
  for (int i = 1; i < 16; i++) found = function(found, half<Number>(vector, i));
  return found;
}

}  // namespace emulated

#define _mm512_cvtph_ps emulated::cvtph_ps
#define _mm512_cvtps_ph(x, rounding) emulated::cvtps_ph(x)
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#define _mm512_cvtepi8_epi32 emulated::cvtepi8_epi32
#define _mm512_extractf32x8_ps(x, which) emulated::half<__m256>(x, which)
#define _mm512_reduce_add_ps(x) emulated::reduce<float>(x, [](float a, float b) { return a + b; })
#define _mm512_reduce_max_ps(x) emulated::reduce<float>(x, [](float a, float b) { return a > b ? a : b; })
#define _mm512_reduce_max_epi32(x) emulated::reduce<int32_t>(x, [](int32_t a, int32_t b) { return a > b ? a : b; })
#define asm(...)  // the fence behind a dot product names registers that are not there

#endif

#ifdef EMULATES_AVXVNNI

inline __m256i emulated_dot(__m256i sums, __m256i inputs, __m256i weights) {
  uint8_t a[32];
  int8_t b[32];
  int32_t c[8];
  memcpy(a, &inputs, sizeof a), memcpy(b, &weights, sizeof b), memcpy(c, &sums, sizeof c);
  for (int i = 0; i < 32; i++) c[i / 4] += a[i] * b[i];
  memcpy(&sums, c, sizeof c);
  return sums;
}
#define _mm256_dpbusd_avx_epi32 emulated_dot

#endif
