#include "sentences.h"

#include <math.h>
#include <string.h>

namespace dragoman {
namespace {

constexpr int32_t kFirstSteps = 32;  // of room that a sentence starts with

// Moves the columns that some past has to the front, in the order in which they lie.
void compact(const Model& model, Sentence& sentence, int beam_size) {
  int32_t* places = sentence.places.data();  // of each column: 0 or 1, whether it is used; then where it goes
  for (int32_t column = 0; column < sentence.num_columns; column++) places[column] = 0;
  for (int k = 0; k < beam_size; k++) {
    for (int32_t t = 0; t < sentence.lengths[k]; t++) places[sentence.past(k)[t]] = 1;
  }
  const size_t column_bytes = 2 * model.attention_width() * model.cache->element_size;
  int32_t num_used = 0;
  for (int32_t column = 0; column < sentence.num_columns; column++) {
    if (!places[column]) continue;
    for (int layer = 0; layer < model.header.num_decoder_layers && num_used != column; layer++) {
      uint8_t* cache = sentence.layer(model, layer);
      memcpy(cache + num_used * column_bytes, cache + column * column_bytes, column_bytes);
    }
    places[column] = num_used++;
  }
  for (int k = 0; k < beam_size; k++) {
    for (int32_t t = 0; t < sentence.lengths[k]; t++) sentence.past(k)[t] = places[sentence.past(k)[t]];
  }
  sentence.num_columns = num_used;
}

bool widen(const Model& model, Sentence& sentence, int32_t capacity) {
  const int num_layers = model.header.num_decoder_layers;
  const size_t column_bytes = 2 * model.attention_width() * model.cache->element_size;
  Array<uint8_t> wider;
  if (!wider.reserve(static_cast<size_t>(num_layers) * capacity * column_bytes)) return false;
  if (!sentence.places.reserve(capacity)) return false;
  for (int layer = 0; layer < num_layers && sentence.num_columns; layer++) {
    memcpy(wider.data() + static_cast<size_t>(layer) * capacity * column_bytes, sentence.layer(model, layer),
           sentence.num_columns * column_bytes);
  }
  sentence.cache.swap(wider);
  sentence.capacity = capacity;
  return true;
}

bool lengthen(Sentence& sentence, int beam_size, int32_t past_capacity) {
  Array<int32_t> pasts, next_pasts;
  const size_t size = static_cast<size_t>(beam_size) * past_capacity;
  if (!pasts.reserve(size) || !next_pasts.reserve(size)) return false;
  for (int k = 0; k < beam_size && sentence.past_capacity; k++) {
    memcpy(pasts.data() + static_cast<size_t>(k) * past_capacity, sentence.past(k),
           sentence.lengths[k] * sizeof(int32_t));
  }
  sentence.pasts.swap(pasts);
  sentence.next_pasts.swap(next_pasts);
  sentence.past_capacity = past_capacity;
  return true;
}

}  // namespace

bool begin(Sentence& sentence, Source* source, int beam_size) {
  sentence.source = source;
  source->num_holders++;
  return sentence.lengths.reserve(beam_size) && sentence.next_lengths.reserve(beam_size);
}

bool make_room(const Model& model, Sentence& sentence, int beam_size, int num_new) {
  if (sentence.num_steps == sentence.past_capacity) {
    if (!lengthen(sentence, beam_size, sentence.past_capacity ? 2 * sentence.past_capacity : kFirstSteps)) return false;
  }
  if (sentence.num_columns + num_new <= sentence.capacity) return true;
  if (!sentence.capacity) return widen(model, sentence, kFirstSteps * beam_size);
  compact(model, sentence, beam_size);
  // At least half is free afterwards, so that columns are seldom moved.
  if (sentence.num_columns + num_new <= sentence.capacity / 2) return true;
  return widen(model, sentence, 2 * sentence.capacity);
}

void reorder(Sentence& sentence, int beam_size, const int64_t* parents) {
  for (int k = 0; k < beam_size; k++) {
    const int32_t length = sentence.lengths[parents[k]];
    memcpy(sentence.next_pasts.data() + static_cast<size_t>(k) * sentence.past_capacity,
           sentence.past(static_cast<int>(parents[k])), length * sizeof(int32_t));
    sentence.next_lengths[k] = length;
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
      !list.scales.reserve(num_outputs) || !list.sums.reserve(num_outputs) || !list.bias.reserve(num_outputs)) {
    return false;
  }
  for (size_t n = 0; n < num_outputs; n++) {
    const bool is_there = n < static_cast<size_t>(num_tokens);
    const int32_t token = tokens[is_there ? n : num_tokens - 1];
    list.tokens[n] = token;
    list.bias[n] = is_there ? all.bias[token] + (model.bans ? model.bans[token] : 0.0f) : -INFINITY;
    if (all.integers) list.scales[n] = all.scales[token], list.sums[n] = all.sums[token];
    for (size_t k = 0; k < num_fours; k++) {
      memcpy(&list.weights[place_of(n, k)], static_cast<const char*>(weights) + 4 * place_of(token, k), 4);
    }
  }
  list.num_tokens = num_tokens;
  list.projection = all;
  list.projection.num_outputs = static_cast<int32_t>(num_outputs);
  list.projection.integers = all.integers ? reinterpret_cast<const int8_t*>(list.weights.data()) : nullptr;
  list.projection.floats = all.integers ? nullptr : list.weights.data();
  list.projection.scales = list.scales.data(), list.projection.sums = list.sums.data();
  list.projection.bias = list.bias.data();
  return true;
}

}  // namespace dragoman
