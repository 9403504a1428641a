// The slots of a group of sentences on a GPU, and what a step there is given and finds: `slots.py` of the engine for
// GPUs says what for.  They lie here because both engines share this library, `Step` and `extend_beams`.
#pragma once

#include "search_state.h"

namespace dragoman {

constexpr int32_t kMostWords = 1 << 10;  // of a hypothesis' columns

// N slots; K hypotheses; W words of 64 columns.
struct Slots {
  int32_t num_slots, beam_size, num_words, mask_bytes;
  uint64_t *past, *seen;          // [N, K, W]
  const int64_t* numbers;         // the slot of each sentence
  int64_t* past_lengths;          // [N]
  const int32_t* source_lengths;  // [N]
  const char* masks;              // [256]: for each byte of bits the mask of its columns
};

// The arrays of a step over the first slots.
struct SlotStep {
  int32_t num_slots, num_words, num_candidates;  // N, W, C
  int64_t *new_places, *past_lengths;            // [N, K, 4], of which the third is the column; [N]
  int32_t* source_lengths;                       // [N]
  char* self_mask;                               // [N, K, W]
  int64_t* tokens;                               // [N, K]
  float* scores;                                 // [N, K]
  const float* best;                             // [N, C]
  const int64_t* ids;                            // [N, C]
  const float* check;                            // [N]
};

// How many columns a slot uses at most, and the words that have all of them.
void count_columns(const Slots& slots, int32_t num_slots, int32_t& most, int32_t& num_words);

// False where a slot has too few columns that are free.
bool write_step(const Slots& slots, int32_t num_sentences, const SlotStep& out, const Step& given);

// An id that is none of a hypothesis and a logit makes the sentence's check no number.
void read_step(const Slots& slots, int32_t num_sentences, const SlotStep& found, int64_t num_logits, const Step& out);

void advance_slots(const Slots& slots, int32_t num_sentences, const int64_t* parents);

}  // namespace dragoman
