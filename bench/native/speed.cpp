// How fast the products of one instruction set are, beside what its dot products can do: a line for each shape.
//
// Compiled with -DISA=Avx2 -DSET='"kernels_avx2.cpp"' and the flags of that set; `python -m bench.native.speed` does it.
#include SET

#include <stdio.h>
#include <time.h>

#include <vector>

using namespace dragoman;

namespace {

constexpr double kSeconds = 0.01;  // of each measurement, of which the best of some counts
constexpr int kTurns = 25;

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The most operations a second, in 10^9, of a function that returns how many it did.
template <class Function>
double best_rate(Function function) {
  double best = 0.0;
  for (int turn = 0; turn < kTurns; turn++) {
    const double began = cpu_seconds();
    double operations = 0.0, took;
    do {
      operations += function();
      took = cpu_seconds() - began;
    } while (took < kSeconds);
    best = operations / took > best ? operations / took : best;
  }
  return 1e-9 * best;
}

// Dot products of what stays in registers: nothing that reads memory is faster.
double dots() {
  constexpr int num_sums = 12, num_rounds = 10'000;  // two dot products a cycle that take five, and some more
  const uint8_t bytes[4] = {1, 2, 3, 4};
  auto x = ISA::broadcast_four(bytes);
  typename ISA::Integers sums[num_sums];
  for (auto& sum : sums) sum = x;
  for (int round = 0; round < num_rounds; round++) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      asm("" : "+x"(x));  // or the compiler would multiply once
      sum = ISA::dot(sum, x, x);
    }
  }
  volatile int32_t seen = 0;
  for (const auto& sum : sums) seen = seen + ISA::greatest(sum);
  return 2.0 * 4 * ISA::width * num_sums * num_rounds;
}

}  // namespace

int main() {
  const double peak = best_rate(dots);
  printf("%-14s %6.0f\n", "dot products", peak);
  const int shapes[][2] = {{256, 768}, {256, 1024}, {1024, 256}, {256, 8000}, {512, 2048}, {512, 32'000}};
  for (const auto& [num_inputs, num_outputs] : shapes) {
    const size_t size = static_cast<size_t>(num_inputs) * num_outputs;
    int8_t* integers;
    if (posix_memalign(reinterpret_cast<void**>(&integers), 64, size)) return 1;
    memset(integers, 1, size);
    const std::vector<float> scales(num_outputs, 1.0f);
    const std::vector<int32_t> sums(num_outputs, num_inputs);
    const Linear linear = {num_inputs, num_outputs, integers, nullptr, scales.data(), sums.data(), scales.data()};
    printf("%5d x %-6d", num_inputs, num_outputs);
    for (const int num_rows : {1, 2, 4, 8, 32, 128}) {
      const std::vector<uint8_t> inputs(static_cast<size_t>(num_rows) * num_inputs, ISA::levels + 2);
      std::vector<float> row_scales(num_rows, 1.0f), out(static_cast<size_t>(num_rows) * num_outputs);
      const Rows rows = {nullptr, inputs.data(), row_scales.data(), ISA::levels + 1};
      const double rate = best_rate([&] {
        product<ISA>(linear, rows, num_rows, out.data(), num_outputs, false);
        return 2.0 * static_cast<double>(size) * num_rows;
      });
      printf("  %3d: %4.0f %3.0f %%", num_rows, rate, 100.0 * rate / peak);
    }
    printf("\n");
    free(integers);
  }
}
