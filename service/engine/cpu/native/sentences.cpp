#include "sentences.h"

#include <math.h>
#include <string.h>

#include <algorithm>

namespace dragoman {

constexpr int32_t kFirstSteps = 16;  // of room that a sentence starts with

bool begin(Sentence& sentence, Source* source, int beam_size) {
  sentence.source = source;
  source->num_holders++;
  sentence.beam_size = beam_size;
  const size_t size = static_cast<size_t>(beam_size) * source->model->header.num_positions;
  return sentence.pasts.reserve(size) && sentence.next_pasts.reserve(size) && sentence.lengths.reserve(beam_size) &&
         sentence.next_lengths.reserve(beam_size);
}

bool make_room(Sentence& sentence, int num_new) {
  if (sentence.num_columns + num_new <= sentence.capacity) return true;
  const int num_layers = sentence.model().header.num_decoder_layers;
  const size_t column_bytes = sentence.model().column_bytes();
  Array<int32_t> places;  // of each column that some past has: 1, and then where it goes
  if (!places.reserve(sentence.num_columns)) return false;
  int32_t num_used = 0;
  for (int k = 0; k < sentence.beam_size; k++) {
    for (int32_t t = 0; t < sentence.lengths[k]; t++) {
      int32_t& place = places[sentence.past(k)[t]];
      num_used += !place, place = 1;
    }
  }
  // Half is free afterwards, so that columns are seldom moved.
  const int32_t capacity = std::max(kFirstSteps * sentence.beam_size, 2 * (num_used + num_new));
  Array<uint8_t> cache;
  if (!cache.reserve(num_layers * capacity * column_bytes)) return false;
  for (int32_t from = 0, to = 0; from < sentence.num_columns; from++) {
    if (!places[from]) continue;
    for (int layer = 0; layer < num_layers; layer++) {
      uint8_t* target = cache.data() + (static_cast<size_t>(layer) * capacity + to) * column_bytes;
      memcpy(target, sentence.layer(layer) + from * column_bytes, column_bytes);
    }
    places[from] = to++;
  }
  for (int k = 0; k < sentence.beam_size; k++) {
    for (int32_t t = 0; t < sentence.lengths[k]; t++) sentence.past(k)[t] = places[sentence.past(k)[t]];
  }
  sentence.cache.swap(cache);
  sentence.num_columns = num_used, sentence.capacity = capacity;
  return true;
}

void reorder(Sentence& sentence, const int64_t* parents) {
  for (int k = 0; k < sentence.beam_size; k++) {
    const auto parent = static_cast<int>(parents[k]);
    const size_t first = static_cast<size_t>(k) * sentence.model().header.num_positions;
    sentence.next_lengths[k] = sentence.lengths[parent];
    memcpy(sentence.next_pasts.data() + first, sentence.past(parent), sentence.lengths[parent] * sizeof(int32_t));
  }
  sentence.pasts.swap(sentence.next_pasts);
  sentence.lengths.swap(sentence.next_lengths);
}

bool choose_tokens(const Model& model, Shortlist& list, const int32_t* tokens, int num_tokens) {
  const Linear& all = model.projection;
  // Weights are copied by four bytes, a float or four integers: [N / 16][K or K / 4][16].
  const size_t num_outputs = round_up(num_tokens, kBlock), num_fours = all.num_inputs / (all.integers ? 4 : 1);
  const auto place_of = [&](size_t n, size_t k) { return (n / kPanel * num_fours + k) * kPanel + n % kPanel; };
  const void* weights = all.integers ? static_cast<const void*>(all.integers) : all.floats;
  if (!list.tokens.reserve(num_outputs) || !list.weights.reserve(num_outputs * num_fours) ||
      !list.scales.reserve(num_outputs) || !list.sums.reserve(num_outputs) || !list.bias.reserve(num_outputs) ||
      !list.bans.reserve(num_outputs)) {
    return false;
  }
  for (size_t n = 0; n < num_outputs; n++) {
    const bool is_there = n < static_cast<size_t>(num_tokens);
    const int32_t token = tokens[is_there ? n : num_tokens - 1];
    list.tokens[n] = token;
    list.bias[n] = is_there ? all.bias[token] : -INFINITY;
    list.bans[n] = model.bans ? model.bans[token] : 0.0f;
    if (all.integers) list.scales[n] = all.scales[token], list.sums[n] = all.sums[token];
    for (size_t k = 0; k < num_fours; k++) {
      memcpy(&list.weights[place_of(n, k)], static_cast<const char*>(weights) + 4 * place_of(token, k), 4);
    }
  }
  list.num_tokens = num_tokens, list.projection = all;
  list.projection.num_outputs = static_cast<int32_t>(num_outputs);
  list.projection.integers = all.integers ? reinterpret_cast<const int8_t*>(list.weights.data()) : nullptr;
  list.projection.floats = all.integers ? nullptr : list.weights.data();
  list.projection.scales = list.scales.data(), list.projection.sums = list.sums.data();
  list.projection.bias = list.bias.data();
  return true;
}

}  // namespace dragoman
