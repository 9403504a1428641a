// The sentences that decode together, numbered from 0 without holes, and a step of the decoder for all of them.
#pragma once

#include <algorithm>

#include "layers.h"

namespace dragoman {

constexpr int32_t kMostHypotheses = 1 << 10;  // of a sentence
constexpr int32_t kMostCandidates = 1 << 16;

template <class T>
bool are_within(const T* ids, int64_t count, int64_t end) {
  return std::all_of(ids, ids + count, [end](T id) { return id >= 0 && id < end; });
}

struct SearchState {
  Model* model;
  int32_t beam_size;            // K
  int32_t num_sentences = 0;    // B
  bool awaits_advance = false;  // after a step
  bool is_broken = false;       // a step failed on its way: the state can only be closed
  Shortlist common;             // what all sentences may use beside their own; without any, they may use all tokens
  Array<Sentence*> sentences;
  // Of a step, by row of the decoder: hypotheses whose score is minus infinity have none.
  Array<DecoderRow> rows;
  Array<int32_t> hypotheses;
  Array<int32_t> first_rows;  // [B + 1], of each sentence
  Array<Edit> edits;

  SearchState(Model* model, int32_t beam_size) : model(model), beam_size(beam_size) {}
  ~SearchState() {
    for (int32_t i = 0; i < num_sentences; i++) delete sentences[i];
  }
};

// What `Runner.decode_step` is given, and where its results go.
struct Step {
  const int64_t* tokens;  // [B, K]
  const float* scores;    // [B, K]
  int32_t num_edits;      // E, sorted by row and token
  const int64_t *edit_rows, *edit_tokens;
  const float *edit_values, *edit_factors;
  int32_t num_candidates;          // C
  float* best;                     // [B, C], descending
  int64_t *best_tokens, *parents;  // [B, C]
  float* check;                    // [B]: not a number where the log-probabilities are not
};

// Runs the decoder for one token of every hypothesis.
Status take_step(SearchState& state, const Step& step);

// Has hypothesis k of sentence b go on from the past of hypothesis parents[b, k].
void advance(SearchState& state, const int64_t* parents);

// Reads a translation in one pass; see `dg_score`.
Status score(Model& model, Source& source, int32_t num_tokens, const int32_t* inputs, const int32_t* following,
             float* log_probs, float* head_weights);

}  // namespace dragoman
