#include "slots.h"

#include <math.h>

#include <algorithm>

namespace dragoman {
namespace {

// Sets `used` [W] to the columns that some hypothesis of a slot attends to.
void find_used(const Slots& slots, int32_t slot, uint64_t* used) {
  const size_t K = slots.beam_size, W = slots.num_words;
  const uint64_t* past = slots.past + slot * K * W;
  for (size_t w = 0; w < W; w++) {
    used[w] = 0;
    for (size_t k = 0; k < K; k++) used[w] |= past[k * W + w];
  }
}

template <size_t bytes>
void write_mask(const uint64_t* seen, size_t num_words, const char* masks, char* out) {
  const auto* bits = reinterpret_cast<const uint8_t*>(seen);
  for (size_t i = 0; i < 8 * num_words; i++) memcpy(out + i * bytes, masks + bits[i] * bytes, bytes);
}

}  // namespace

void count_columns(const Slots& slots, int32_t num_slots, int32_t& most, int32_t& num_words) {
  uint64_t used[kMostWords];
  most = num_words = 0;
  for (int32_t n = 0; n < num_slots; n++) {
    find_used(slots, n, used);
    int32_t count = 0;
    for (int32_t w = 0; w < slots.num_words; w++) {
      count += __builtin_popcountll(used[w]);
      if (used[w]) num_words = std::max(num_words, w + 1);
    }
    most = std::max(most, count);
  }
}

bool write_step(const Slots& slots, int32_t num_sentences, const SlotStep& out, const Step& given) {
  const size_t K = slots.beam_size, W = slots.num_words, N = out.num_slots;
  uint64_t used[kMostWords];
  for (size_t n = 0; n < N; n++) {
    find_used(slots, static_cast<int32_t>(n), used);
    uint64_t* seen = slots.seen + n * K * W;
    memcpy(seen, slots.past + n * K * W, K * W * sizeof(uint64_t));
    for (size_t k = 0, w = 0; k < K; k++) {
      while (w < W && ~used[w] == 0) w++;
      if (w == W) return false;
      const uint64_t free = ~used[w] & (used[w] + 1);  // the first column alone
      used[w] |= free, seen[k * W + w] |= free;
      out.new_places[(n * K + k) * 4 + 2] = static_cast<int64_t>(64 * w + __builtin_ctzll(free));
    }
    const auto write = slots.mask_bytes == 16 ? write_mask<16> : write_mask<32>;
    write(seen, K * W, slots.masks, out.self_mask + n * K * W * 8 * slots.mask_bytes);
  }
  memcpy(out.past_lengths, slots.past_lengths, N * sizeof(int64_t));
  memcpy(out.source_lengths, slots.source_lengths, N * sizeof(int32_t));
  memset(out.tokens, 0, N * K * sizeof(int64_t));
  memset(out.scores, 0, N * K * sizeof(float));
  for (int32_t b = 0; b < num_sentences; b++) {
    memcpy(out.tokens + slots.numbers[b] * K, given.tokens + b * K, K * sizeof(int64_t));
    memcpy(out.scores + slots.numbers[b] * K, given.scores + b * K, K * sizeof(float));
  }
  return true;
}

void read_step(const Slots& slots, int32_t num_sentences, const SlotStep& found, int64_t num_logits, const Step& out) {
  const size_t C = found.num_candidates;
  for (int32_t b = 0; b < num_sentences; b++) {
    const size_t from = slots.numbers[b] * C, to = b * C;
    out.check[b] = found.check[slots.numbers[b]];
    for (size_t c = 0; c < C; c++) {
      int64_t id = found.ids[from + c], parent = id / num_logits;
      if (id < 0 || parent >= slots.beam_size) id = parent = 0, out.check[b] = NAN;
      out.best[to + c] = found.best[from + c];
      out.best_tokens[to + c] = id - parent * num_logits, out.parents[to + c] = parent;
    }
  }
}

void advance_slots(const Slots& slots, int32_t num_sentences, const int64_t* parents) {
  const size_t K = slots.beam_size, W = slots.num_words;
  for (int32_t b = 0; b < num_sentences; b++) {
    const size_t first = slots.numbers[b] * K;
    for (size_t k = 0; k < K; k++) {
      const uint64_t* parent = slots.seen + (first + parents[b * K + k]) * W;
      for (size_t w = 0; w < W; w++) slots.past[(first + k) * W + w] = parent[w];
    }
    slots.past_lengths[slots.numbers[b]]++;
  }
}

}  // namespace dragoman
