// Compares the kernels of every instruction set that this CPU can run with the plain ones: `kernels_test [SEED [SET
// ...]]`.
//
// Prints a line for each function that differs and ends with 1 if there was one.  Values are random, rows from 1 to 40,
// widths odd multiples of the smallest.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "plain.h"

using namespace dragoman;

namespace {

constexpr int kTrials = 40;
int num_failures = 0;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int integer(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }
  int multiple(int most) { return kPanel * integer(1, most); }
  float number(float deviation = 1.0f) { return std::normal_distribution<float>(0.0f, deviation)(engine_); }
  std::vector<float> numbers(size_t count, float deviation = 1.0f) {
    std::vector<float> values(count);
    for (float& value : values) value = number(deviation);
    return values;
  }

 private:
  std::mt19937 engine_;
};

template <class T>
struct Aligned {  // as the weights of a packed model are
  explicit Aligned(size_t count) : count(count) {
    if (posix_memalign(reinterpret_cast<void**>(&data), 64, count * sizeof(T) + 64)) abort();
    memset(static_cast<void*>(data), 0, count * sizeof(T) + 64);
  }
  Aligned(const Aligned&) = delete;
  ~Aligned() { free(data); }
  T* data;
  size_t count;
};

void require(bool is_right, const char* set, const std::string& what) {
  if (is_right) return;
  num_failures++;
  printf("%s: %s differs from the plain kernels\n", set, what.c_str());
}

bool are_close(float a, float b, float tolerance) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (isinf(a) || isinf(b)) return a == b;
  return fabsf(a - b) <= tolerance * fmaxf(1.0f, fmaxf(fabsf(a), fabsf(b)));
}

bool are_close(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  for (size_t i = 0; i < a.size(); i++) {
    if (!are_close(a[i], b[i], tolerance)) return false;
  }
  return a.size() == b.size();
}

int padded(int number) { return (number + kPanel - 1) / kPanel * kPanel; }

// A product with random weights, and rows for it.
struct Product {
  Product(Random& random, int num_rows, int num_inputs, int num_outputs, bool is_integer, const Kernels& kernels)
      : integers(static_cast<size_t>(num_inputs) * num_outputs),
        floats(is_integer ? 0 : static_cast<size_t>(num_inputs) * num_outputs),
        sums(num_outputs),
        scales(random.numbers(num_outputs, 0.01f)),
        bias(random.numbers(num_outputs)),
        row_floats(random.numbers(static_cast<size_t>(num_rows) * num_inputs)),
        row_scales(random.numbers(num_rows)),
        row_integers(static_cast<size_t>(num_rows) * num_inputs) {
    const int most = 2 * kernels.levels + 1,
              most_of = random.integer(0, 3);  // rows of the greatest integers alone, too
    for (uint8_t& value : row_integers) value = static_cast<uint8_t>(most_of ? random.integer(0, most) : most);
    for (int n = 0; n < num_outputs; n++) {
      int positive[2] = {}, negative[2] = {};  // what the sums of 16 bits may still take
      for (int k = 0; k < num_inputs; k++) {
        const size_t panel = static_cast<size_t>(n / kPanel) * kPanel * num_inputs;
        if (is_integer) {
          const int pair = k / 2 % 2;
          if (k % (4 * kSummedDots) == 0) {
            for (int& room : positive) room = kernels.most_weight_sum;
            for (int& room : negative) room = kernels.most_weight_sum;
          }
          int value = random.integer(0, 9) ? random.integer(-127, 127) : 127;
          value = value > positive[pair] ? positive[pair] : value < -negative[pair] ? -negative[pair] : value;
          (value > 0 ? positive : negative)[pair] -= abs(value);
          integers.data[panel + static_cast<size_t>(k / 4) * 4 * kPanel + n % kPanel * 4 + k % 4] =
              static_cast<int8_t>(value);
          sums[n] += value;
        } else {
          floats.data[panel + static_cast<size_t>(k) * kPanel + n % kPanel] = random.number(0.1f);
        }
      }
    }
    linear = {num_inputs,
              num_outputs,
              is_integer ? integers.data : nullptr,
              is_integer ? nullptr : floats.data,
              scales.data(),
              sums.data(),
              bias.data()};
    const int zero = random.integer(0, 1) ? kernels.levels + 1 : 0;
    rows = {is_integer ? nullptr : row_floats.data(), row_integers.data(), row_scales.data(), zero};
  }

  Aligned<int8_t> integers;
  Aligned<float> floats;
  std::vector<int32_t> sums;
  std::vector<float> scales, bias, row_floats, row_scales;
  std::vector<uint8_t> row_integers;
  Linear linear;
  Rows rows;
};

void check_products(const Kernels& kernels, Random& random) {
  for (int num_rows = 1; num_rows <= 40; num_rows++) {
    for (const bool is_integer : {true, false}) {
      Product product(random, num_rows, random.multiple(9), random.multiple(11), is_integer, kernels);
      const int num_outputs = product.linear.num_outputs, stride = num_outputs + 3;
      std::vector<float> found = random.numbers(static_cast<size_t>(num_rows) * stride), wanted = found;
      const bool is_added = random.integer(0, 1);
      kernels.product(product.linear, product.rows, num_rows, found.data(), stride, is_added);
      plain_kernels.product(product.linear, product.rows, num_rows, wanted.data(), stride, is_added);
      require(are_close(found, wanted, 1e-5f), kernels.name, is_integer ? "product of integers" : "product of floats");
      // A row alone gives what it gives beside others, to the bit.
      std::vector<float> alone = std::vector<float>(num_outputs), beside(static_cast<size_t>(num_rows) * num_outputs);
      kernels.product(product.linear, product.rows, num_rows, beside.data(), num_outputs, false);
      Rows last = product.rows;
      const size_t offset = static_cast<size_t>(num_rows - 1) * product.linear.num_inputs;
      last.floats = last.floats ? last.floats + offset : nullptr;
      last.integers += offset, last.scales += num_rows - 1;
      kernels.product(product.linear, last, 1, alone.data(), num_outputs, false);
      const float* same = beside.data() + static_cast<size_t>(num_rows - 1) * num_outputs;
      require(memcmp(alone.data(), same, num_outputs * sizeof(float)) == 0, kernels.name, "a row beside others");
    }
  }
}

void check_ranking(const Kernels& kernels, Random& random) {
  for (int num_rows = 1; num_rows <= 40; num_rows++) {
    const bool is_integer = random.integer(0, 1);
    const int num_outputs = kBlock * random.integer(1, 5), num_best = random.integer(1, 70);
    Product product(random, num_rows, random.multiple(5), num_outputs, is_integer, kernels);
    for (int i = 0; i < kBlock && num_outputs > kBlock; i++)
      product.bias[i] = -INFINITY;  // a whole block without a token
    std::vector<float> bans(num_outputs);
    for (float& ban : bans) ban = random.integer(0, 9) ? 0.0f : -INFINITY;
    std::vector<Edit> edits;
    std::vector<Ranking> found(num_rows), wanted(num_rows);
    std::vector<std::vector<float>> logits(2 * num_rows, std::vector<float>(num_best));
    std::vector<std::vector<int32_t>> tokens(2 * num_rows, std::vector<int32_t>(num_best));
    for (int row = 0; row < num_rows; row++) {
      found[row].first_edit = static_cast<int32_t>(edits.size());
      for (int n = random.integer(0, 30); n < num_outputs; n += random.integer(1, 60)) {
        edits.push_back({n, random.integer(0, 1) ? 0.0f : -INFINITY, random.integer(0, 1) ? 1.0f : 1.5f});
      }
      found[row].end_edit = static_cast<int32_t>(edits.size());
      wanted[row] = found[row];
      found[row].logits = logits[row].data(), found[row].tokens = tokens[row].data();
      wanted[row].logits = logits[num_rows + row].data(), wanted[row].tokens = tokens[num_rows + row].data();
    }
    const float* given_bans = random.integer(0, 1) ? bans.data() : nullptr;
    kernels.rank(product.linear, product.rows, num_rows, edits.data(), given_bans, num_best, found.data());
    plain_kernels.rank(product.linear, product.rows, num_rows, edits.data(), given_bans, num_best, wanted.data());
    for (int row = 0; row < num_rows; row++) {
      require(are_close(logits[row], logits[num_rows + row], 1e-5f), kernels.name, "ranking");
      require(are_close(found[row].log_sum, wanted[row].log_sum, 1e-5f), kernels.name, "sum of exponentials");
      if (is_integer) require(tokens[row] == tokens[num_rows + row], kernels.name, "order of tokens");
    }
  }
}

void check_rows(const Kernels& kernels, Random& random) {
  for (int trial = 0; trial < kTrials; trial++) {
    const int width = random.multiple(21);
    const std::vector<float> values = random.numbers(width, 3.0f), weight = random.numbers(width),
                             bias = random.numbers(width);
    std::vector<float> found(width), wanted(width);
    const Norm norm = {weight.data(), random.integer(0, 1) ? bias.data() : nullptr, 1e-5f};
    kernels.normalize(values.data(), width, norm, found.data());
    plain_kernels.normalize(values.data(), width, norm, wanted.data());
    require(are_close(found, wanted, 1e-5f), kernels.name, "norm");

    for (const auto activation : {Activation::kRelu, Activation::kSwish, Activation::kGelu, Activation::kGeluTanh}) {
      found = wanted = random.numbers(width, trial % 4 ? 3.0f : 60.0f);
      const float* factors = random.integer(0, 1) ? bias.data() : nullptr;
      kernels.activate(found.data(), factors, width, activation);
      plain_kernels.activate(wanted.data(), factors, width, activation);
      require(are_close(found, wanted, 2e-6f), kernels.name,
              "activation " + std::to_string(static_cast<int>(activation)));
    }

    const std::vector<float> inputs = random.numbers(2 * width, 3.0f), parent = random.numbers(width);
    const float* given_parent = random.integer(0, 1) ? parent.data() : nullptr;
    std::vector<float> cell(width), wanted_cell(width);
    found = wanted = random.numbers(width);
    kernels.recur(inputs.data(), given_parent, width, cell.data(), found.data());
    plain_kernels.recur(inputs.data(), given_parent, width, wanted_cell.data(), wanted.data());
    require(are_close(cell, wanted_cell, 1e-5f) && are_close(found, wanted, 1e-5f), kernels.name, "recurrent unit");

    for (const bool is_positive : {false, true}) {
      std::vector<float> given = values;
      for (float& value : given) value = is_positive ? fabsf(value) : value;
      float largest = 0.0f;
      for (const float value : given) largest = fmaxf(largest, fabsf(value));
      const int zero = is_positive ? 0 : kernels.levels + 1, num_levels = 2 * kernels.levels + 1 - zero;
      std::vector<uint8_t> levels(width);
      const float scale = kernels.quantize(given.data(), width, is_positive, levels.data());
      require(are_close(scale, largest / num_levels, 1e-6f), kernels.name, "scale");
      for (int i = 0; i < width; i++) {
        const float error = fabsf((levels[i] - zero) * scale - given[i]);
        require(error <= 0.501f * scale, kernels.name, "quantising");
      }
      std::vector<float> nothing(width);
      kernels.quantize(nothing.data(), width, is_positive, levels.data());
      for (const uint8_t level : levels) require(level == zero, kernels.name, "quantising zeros");
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> poisoned = given;
        poisoned[random.integer(0, width - 1)] = bad;
        require(isnan(kernels.quantize(poisoned.data(), width, is_positive, levels.data())), kernels.name,
                "scale of what is not finite");
      }
    }

    const int num_tokens = random.integer(1, 9), token = random.integer(0, num_tokens - 1);
    std::vector<int8_t> integers(static_cast<size_t>(num_tokens) * width);
    for (int8_t& value : integers) value = static_cast<int8_t>(random.integer(-127, 127));
    const std::vector<float> rows = random.numbers(integers.size()), scales = random.numbers(num_tokens);
    for (const Table& table : {Table{rows.data(), nullptr, nullptr}, Table{nullptr, integers.data(), scales.data()}}) {
      const float* position = random.integer(0, 1) ? bias.data() : nullptr;
      kernels.embed(table, token, position, width, found.data());
      plain_kernels.embed(table, token, position, width, wanted.data());
      require(are_close(found, wanted, 1e-6f), kernels.name, "embedding");
    }
  }
}

void check_attention(const Kernels& kernels, const CacheKernels& cache, const CacheKernels& plain, Random& random) {
  const float tolerance = cache.element_size == sizeof(float) ? 1e-5f : 1e-4f;
  const std::string type = cache.element_size == sizeof(float) ? " with floats" : " with halves";
  for (int trial = 0; trial < kTrials; trial++) {
    const int num_heads = random.integer(1, 9), head_width = random.multiple(random.integer(0, 3) ? 4 : 12);
    const int width = num_heads * head_width, num_columns = 1 + trial, num_queries = random.integer(1, 9);
    const float scale = 1.0f / sqrtf(static_cast<float>(head_width));

    // Over one's own past: some of the columns that there are, in any order.
    const int num_all = num_columns + random.integer(0, 5);
    const std::vector<float> columns = random.numbers(static_cast<size_t>(num_all) * 2 * width);
    Aligned<uint8_t> stored(columns.size() * cache.element_size), wanted_stored(columns.size() * cache.element_size);
    cache.store(columns.data(), static_cast<int>(columns.size()), stored.data);
    plain.store(columns.data(), static_cast<int>(columns.size()), wanted_stored.data);
    require(memcmp(stored.data, wanted_stored.data, stored.count) == 0, kernels.name, "store" + type);
    std::vector<int32_t> chosen(num_columns);
    for (int32_t& column : chosen) column = random.integer(0, num_all - 1);
    const std::vector<float> queries = random.numbers(static_cast<size_t>(num_queries) * width, 2.0f);
    const std::vector<float> own_bias = random.numbers(static_cast<size_t>(num_heads) * num_columns);
    std::vector<float> weights(static_cast<size_t>(num_heads > 4 ? num_heads : 4) * padded(num_columns));
    std::vector<float> found(static_cast<size_t>(num_queries) * width), wanted(found.size());
    ColumnAttention own = {queries.data(), stored.data, chosen.data(), num_columns,
                           num_heads,      head_width,  scale,         trial % 2 ? own_bias.data() : nullptr,
                           weights.data(), found.data()};
    cache.attend_columns(own);
    own.out = wanted.data();
    plain.attend_columns(own);
    require(are_close(found, wanted, tolerance), kernels.name, "attention to columns" + type);

    // Over a source.
    const int stride = padded(num_columns);
    Aligned<uint8_t> keys(static_cast<size_t>(width) * stride * cache.element_size), wanted_keys(keys.count);
    cache.transpose(columns.data(), 2 * width, num_columns, width, keys.data);
    plain.transpose(columns.data(), 2 * width, num_columns, width, wanted_keys.data);
    require(memcmp(keys.data, wanted_keys.data, keys.count) == 0, kernels.name, "transposed keys" + type);
    const std::vector<float> bias = random.numbers(static_cast<size_t>(num_heads) * (num_queries + num_columns - 1));
    std::vector<float> head_weights(static_cast<size_t>(num_heads) * num_queries * num_columns),
        wanted_head_weights(head_weights.size());
    SharedAttention shared = {queries.data(),
                              static_cast<size_t>(width),
                              num_queries,
                              keys.data,
                              stored.data + width * cache.element_size,
                              static_cast<size_t>(2 * width),
                              num_columns,
                              num_heads,
                              head_width,
                              scale,
                              trial % 2 ? bias.data() : nullptr,
                              weights.data(),
                              found.data(),
                              static_cast<size_t>(width),
                              head_weights.data()};
    cache.attend_shared(shared);
    shared.out = wanted.data(), shared.head_weights = wanted_head_weights.data();
    plain.attend_shared(shared);
    require(are_close(found, wanted, tolerance), kernels.name, "attention to a source" + type);
    require(are_close(head_weights, wanted_head_weights, tolerance), kernels.name, "weights of attention" + type);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Random random(argc > 1 ? static_cast<unsigned>(atoi(argv[1])) : 1);
  for (const char* name : {"avx2", "avxvnni", "avx512vnni"}) {
    const Kernels* kernels = find_kernels(name);
    if (!kernels) {
      printf("%s: this CPU cannot run it\n", name);
      continue;
    }
    const int failures = num_failures;
    check_products(*kernels, random);
    check_ranking(*kernels, random);
    check_rows(*kernels, random);
    check_attention(*kernels, kernels->halves, plain_kernels.halves, random);
    check_attention(*kernels, kernels->floats, plain_kernels.floats, random);
    if (num_failures == failures) printf("%s: as the plain kernels\n", name);
  }
  return num_failures ? 1 : 0;
}
