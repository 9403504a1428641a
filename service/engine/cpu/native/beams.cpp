#include "beams.h"

#include <math.h>
#include <string.h>

namespace dragoman {
namespace {

bool may_loop(int64_t num_steps) { return num_steps >= kLoopTokens && num_steps % kLoopStride == 0; }

Mark mark_of(const Step& step, int32_t b, const Beams& beams, int64_t end) {
  const size_t first = static_cast<size_t>(b) * step.num_candidates;
  if (!(step.check[b] < INFINITY && step.best[first] > -INFINITY)) return kNonFinite;  // what is no number included
  const int64_t num_steps = beams.num_steps[b] + 1;
  if (num_steps == beams.max_steps[b] || may_loop(num_steps)) return kMayEnd;
  const int64_t* tokens = step.best_tokens + first;
  return std::find(tokens, tokens + beams.beam_size, end) == tokens + beams.beam_size ? kGoesOn : kMayEnd;
}

// Records the hypotheses of a sentence that end, and puts the best candidates after the first K that do not end in
// their places.  Says whether the sentence has ended.
bool end_hypotheses(const Step& step, int32_t b, const Beams& beams, int64_t end, int64_t* parents, Endings& endings) {
  const int32_t K = beams.beam_size, C = step.num_candidates;
  const int64_t length = beams.num_steps[b];
  const bool is_last = length == beams.max_steps[b];
  const size_t first = static_cast<size_t>(b) * C;
  const float factor = powf(static_cast<float>(length), beams.penalties[b]);
  const size_t place = (static_cast<size_t>(b) * beams.num_columns + length) * K;
  int32_t next = K;  // the rank of the best candidate that may take a place
  for (int32_t k = 0; k < K; k++) {
    const int64_t token = step.best_tokens[first + k];
    if ((token != end && !is_last) || step.best[first + k] == -INFINITY) continue;
    const int32_t i = endings.count++;
    endings.sentences[i] = b, endings.lengths[i] = length;
    endings.scores[i] = step.best[first + k] / factor;
    endings.parents[i] = step.parents[first + k];
    endings.tokens[i] = token;
    beams.still_wanted[b]--;
    if (k == 0) beams.waits_for_best[b] = 0;
    while (next < C && step.best_tokens[first + next] == end) next++;
    if (next == C) continue;
    beams.scores[static_cast<size_t>(b) * K + k] = step.best[first + next];
    beams.newest[static_cast<size_t>(b) * K + k] = beams.tokens[place + k] = step.best_tokens[first + next];
    parents[static_cast<size_t>(b) * K + k] = beams.parents[place + k] = step.parents[first + next];
    next++;
  }
  return is_last || (beams.still_wanted[b] <= 0 && !beams.waits_for_best[b]);
}

}  // namespace

void extend_beams(const Step& step, int32_t num_sentences, const Beams& beams, int64_t end, int64_t* parents,
                  uint8_t* marks, Endings* endings) {
  const size_t K = beams.beam_size, C = step.num_candidates;
  for (int32_t b = 0; b < num_sentences; b++) {
    marks[b] = mark_of(step, b, beams, end);
    float* best = step.best + b * C;
    const int64_t *tokens = step.best_tokens + b * C, *from = step.parents + b * C;
    if (K == 1) {
      for (size_t c = 0; c < C; c++) best[c] += beams.scores[b];
    }
    const size_t place = (static_cast<size_t>(b) * beams.num_columns + ++beams.num_steps[b]) * K;
    memcpy(beams.scores + b * K, best, K * sizeof(float));
    memcpy(beams.newest + b * K, tokens, K * sizeof(int64_t));
    memcpy(beams.tokens + place, tokens, K * sizeof(int64_t));
    memcpy(beams.parents + place, from, K * sizeof(int64_t));
    memcpy(parents + b * K, from, K * sizeof(int64_t));
    if (endings && marks[b] == kMayEnd && !may_loop(beams.num_steps[b])) {
      marks[b] = end_hypotheses(step, b, beams, end, parents, *endings) ? kHasEnded : kGoesOn;
    }
  }
}

bool trace(const Beams& beams, int32_t b, int64_t length, int64_t place, int64_t* tokens) {
  for (int64_t step = length - 1; step > 0; step--) {
    if (place < 0 || place >= beams.beam_size) return false;
    const size_t at = (static_cast<size_t>(b) * beams.num_columns + step) * beams.beam_size + place;
    tokens[step - 1] = beams.tokens[at];
    place = beams.parents[at];
  }
  return true;
}

Status run_ahead(SearchState& state, const Step& step, const Beams& beams, int64_t end, int32_t most, int64_t* parents,
                 uint8_t* marks, Endings& endings, int32_t& num_steps) {
  const int32_t num_sentences = state.num_sentences, most_endings = num_sentences * beams.beam_size;
  Step next = step;
  next.num_edits = 0;
  next.tokens = beams.newest;
  if (beams.beam_size > 1) next.scores = beams.scores;
  for (num_steps = 1;; num_steps++) {
    if (const Status status = take_step(state, next)) return status;
    extend_beams(next, num_sentences, beams, end, parents, marks, &endings);
    if (num_steps == most || endings.num_rooms - endings.count < most_endings) return kOk;
    for (int32_t b = 0; b < num_sentences; b++) {
      if (marks[b] != kGoesOn || beams.num_steps[b] + 1 == beams.num_columns) return kOk;
    }
    advance(state, parents);
  }
}

}  // namespace dragoman
