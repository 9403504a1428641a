// The products of cuBLAS and cuBLASLt, counted with their sizes.
#include <algorithm>
#include <cstdio>

#include "counters.h"

namespace {

// Roofline of an H100 in half precision: 300 TFLOP/s reached, 2.6 TB/s, and no product under 4 us.
int product(const char* function, double m, double n, double k, double batch) {
  char name[100];
  snprintf(name, sizeof name, "%s %.0f x %.0f x %.0f, %.0f times", function, m, n, k, batch);
  const double arithmetic = 2 * m * n * k * batch / 300e6, memory = 2 * (m * k + k * n + m * n) * batch / 2.6e6;
  counted_kernel("product", name, std::max(2.5, std::max(arithmetic, memory)) + 1.5);
  return 0;
}

}  // namespace

EXPORTED int cublasCreate_v2(void** handle) {
  *handle = handle;
  return 0;
}
EXPORTED int cublasLtCreate(void** handle) { return cublasCreate_v2(handle); }
EXPORTED int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return 0;
}
EXPORTED const char* cublasGetStatusName(int) { return "an error of cuBLAS"; }
EXPORTED const char* cublasGetStatusString(int) { return "an error of cuBLAS"; }
EXPORTED int cublasGemmEx(void*, int, int, int m, int n, int k, ...) { return product("GemmEx", m, n, k, 1); }
EXPORTED int cublasSgemm_v2(void*, int, int, int m, int n, int k, ...) { return product("Sgemm", m, n, k, 1); }
EXPORTED int cublasGemmStridedBatchedEx(void*, int, int, int m, int n, int k, const void*, const void*, int, int, long long,
                                        const void*, int, int, long long, const void*, void*, int, int, long long, int batch,
                                        int, int) {
  return product("GemmStridedBatchedEx", m, n, k, batch);
}
EXPORTED int cublasGemmBatchedEx(void*, int, int, int m, int n, int k, const void*, const void* const*, int, int,
                                 const void* const*, int, int, const void*, void* const*, int, int, int batch, int, int) {
  return product("GemmBatchedEx", m, n, k, batch);
}
EXPORTED int cublasSgemmStridedBatched(void*, int, int, int m, int n, int k, const float*, const float*, int, long long,
                                       const float*, int, long long, const float*, float*, int, long long, int batch) {
  return product("SgemmStridedBatched", m, n, k, batch);
}
EXPORTED int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*, int* found) {
  *found = 1;
  return 0;
}
EXPORTED int cublasLtMatmul(...) { return product("LtMatmul", 0, 0, 0, 1); }
