#include "search_state.h"

#include <math.h>
#include <string.h>

#include <algorithm>

namespace dragoman {
namespace {

bool is_within(int64_t number, int64_t end) { return number >= 0 && number < end; }

bool is_valid(const SearchState& state, const Step& step) {
  const Header& header = state.model->header;
  const int64_t num_rows = static_cast<int64_t>(state.num_sentences) * state.beam_size;
  if (state.awaits_advance || state.is_broken || step.num_candidates < 1 || step.num_candidates > kMostCandidates)
    return false;
  for (int64_t row = 0; row < num_rows; row++) {
    if (!is_within(step.tokens[row], header.num_target_tokens)) return false;
  }
  for (int32_t i = 0; i < state.num_sentences; i++) {
    if (state.sentences[i]->num_steps >= header.num_positions) return false;
  }
  for (int32_t i = 0; i < step.num_edits; i++) {
    if (!is_within(step.edit_rows[i], num_rows) || !is_within(step.edit_tokens[i], header.num_logits)) return false;
    if (!(step.edit_factors[i] > 0.0f)) return false;
    if (i == 0) continue;
    const int64_t order = step.edit_rows[i] - step.edit_rows[i - 1];
    if (order < 0 || (order == 0 && step.edit_tokens[i] <= step.edit_tokens[i - 1])) return false;
  }
  return true;
}

// Lists the hypotheses that go on and gives each a column; false where there is no memory.
bool list_rows(SearchState& state, const Step& step, int& num_rows) {
  const size_t most = static_cast<size_t>(state.num_sentences) * state.beam_size;
  if (!state.rows.reserve(most) || !state.hypotheses.reserve(most)) return false;
  num_rows = 0;
  for (int32_t b = 0; b < state.num_sentences; b++) {
    Sentence& sentence = *state.sentences[b];
    const size_t first = static_cast<size_t>(b) * state.beam_size;
    int num_new = 0;
    for (int k = 0; k < state.beam_size; k++) num_new += step.scores[first + k] != -INFINITY;
    if (!make_room(*state.model, sentence, state.beam_size, num_new)) return false;
    for (int k = 0; k < state.beam_size; k++) {
      if (step.scores[first + k] == -INFINITY) continue;
      const int32_t column = sentence.num_columns++;
      if (state.model->header.is_recurrent) sentence.keep_newest(k);
      sentence.past(k)[sentence.lengths[k]++] = column;
      const auto token = static_cast<int32_t>(step.tokens[first + k]);
      state.rows[num_rows] = {&sentence, token, sentence.num_steps, column, sentence.past(k), sentence.lengths[k]};
      state.hypotheses[num_rows++] = k;
    }
  }
  return true;
}

// The place of a token in a shortlist, or -1.
int32_t find(const Shortlist& list, int32_t token) {
  const int32_t *first = list.tokens.data(), *end = first + list.num_tokens;
  const int32_t* found = std::lower_bound(first, end, token);
  return found < end && *found == token ? static_cast<int32_t>(found - first) : -1;
}

// Gives every row its edits, with the places of tokens where they are ranked: among all or in the common list, and for
// `own` [num_rows], or null, in its sentence's own list.  Returns false where there is no memory.
bool list_edits(SearchState& state, const Step& step, int num_rows, Ranking* rankings, Ranking* own) {
  if (!state.edits.reserve(2 * static_cast<size_t>(step.num_edits))) return false;
  int32_t given = 0, taken = 0, b = -1;
  for (int row = 0; row < num_rows; row++) {
    const Sentence* sentence = state.rows[row].sentence;
    if (row == 0 || sentence != state.rows[row - 1].sentence) {
      do b++;
      while (state.sentences[b] != sentence);
    }
    const int64_t wanted = static_cast<int64_t>(b) * state.beam_size + state.hypotheses[row];
    while (given < step.num_edits && step.edit_rows[given] < wanted) given++;
    const int32_t first = given;
    while (given < step.num_edits && step.edit_rows[given] == wanted) given++;
    const auto list = [&](Ranking& ranking, const Shortlist* tokens) {
      ranking.first_edit = taken;
      for (int32_t i = first; i < given; i++) {
        const auto token = static_cast<int32_t>(step.edit_tokens[i]);
        const int32_t place = tokens ? find(*tokens, token) : token;
        if (place >= 0) state.edits[taken++] = {row, place, step.edit_values[i], step.edit_factors[i]};
      }
      ranking.end_edit = taken;
    };
    list(rankings[row], own ? &state.common : nullptr);
    if (own) list(own[row], &sentence->shortlist);
  }
  return true;
}

// Ranks the tokens of a list for some rows.
void rank_list(SearchState& state, const Shortlist& list, const Rows& rows, int num_rows, int num_candidates,
               Ranking* rankings) {
  state.model->kernels->rank(list.projection, rows, num_rows, state.edits.data(), nullptr, num_candidates, rankings);
  for (int i = 0; i < num_rows; i++) {
    for (int c = 0; c < num_candidates; c++) rankings[i].tokens[c] = list.tokens[rankings[i].tokens[c]];
  }
}

// Adds other tokens of a row to its ranking; of equal ones, those that are there stand first.
void join(Ranking& ranking, const Ranking& others, int num_candidates) {
  int kept = num_candidates, taken = 0;
  while (kept && others.logits[taken] > ranking.logits[kept - 1]) kept--, taken++;
  for (int place = num_candidates - 1; taken; place--) {
    const bool is_other = !kept || others.logits[taken - 1] <= ranking.logits[kept - 1];
    const Ranking& from = is_other ? others : ranking;
    const int rank = is_other ? --taken : --kept;
    ranking.logits[place] = from.logits[rank];
    ranking.tokens[place] = from.tokens[rank];
  }
  const bool is_greater = ranking.log_sum > others.log_sum;
  const float greater = is_greater ? ranking.log_sum : others.log_sum;
  ranking.log_sum = greater + log1pf(expf((is_greater ? others.log_sum : ranking.log_sum) - greater));
}

// Ranks the tokens of all rows: all there are, or those of the common list and then each sentence's own.
void rank_rows(SearchState& state, const Rows& states, int num_rows, int num_candidates, Ranking* rankings,
               Ranking* own) {
  const Model& model = *state.model;
  if (!own) {
    model.kernels->rank(model.projection, states, num_rows, state.edits.data(), model.bans, num_candidates, rankings);
    return;
  }
  rank_list(state, state.common, states, num_rows, num_candidates, rankings);
  for (int row = 0, count; row < num_rows; row += count) {
    const Sentence& sentence = *state.rows[row].sentence;
    for (count = 1; row + count < num_rows && state.rows[row + count].sentence == &sentence;) count++;
    if (!sentence.shortlist.num_tokens) continue;
    rank_list(state, sentence.shortlist, behind(states, row, model.header.width), count, num_candidates, own + row);
    for (int i = row; i < row + count; i++) join(rankings[i], own[i], num_candidates);
  }
}

// The C best of a sentence's `count` rows, which are sorted each; of equal ones, those of the first hypothesis.
void merge(const SearchState& state, const Step& step, int b, int first_row, int count) {
  const Ranking* rankings = state.model->rankings.data() + first_row;
  const float* scores = step.scores + static_cast<size_t>(b) * state.beam_size;
  const size_t first = static_cast<size_t>(b) * step.num_candidates;
  int32_t taken[kMostHypotheses] = {};
  for (int c = 0; c < step.num_candidates; c++) {
    int best_row = -1;
    float best = -INFINITY;
    for (int i = 0; i < count; i++) {
      if (taken[i] == step.num_candidates) continue;
      const float log_prob = rankings[i].logits[taken[i]] - rankings[i].log_sum;
      const float sum = scores[state.hypotheses[first_row + i]] + log_prob;
      if (sum > best) best = sum, best_row = i;
    }
    step.best[first + c] = best;
    step.best_tokens[first + c] = best_row < 0 ? 0 : rankings[best_row].tokens[taken[best_row]++];
    step.parents[first + c] = best_row < 0 ? 0 : state.hypotheses[first_row + best_row];
  }
  step.check[b] = 0.0f;
  for (int i = 0; i < count; i++) step.check[b] += rankings[i].log_sum;
}

bool may_loop(int64_t num_steps) { return num_steps >= kLoopTokens && num_steps % kLoopStride == 0; }

Mark mark_of(const Step& step, int32_t b, const Beams& beams, int64_t end) {
  const size_t first = static_cast<size_t>(b) * step.num_candidates;
  if (!(step.check[b] < INFINITY && step.best[first] > -INFINITY)) return kNonFinite;  // what is no number included
  const int64_t num_steps = beams.num_steps[b] + 1;
  if (num_steps == beams.max_steps[b] || may_loop(num_steps)) return kMayEnd;
  for (int32_t k = 0; k < beams.beam_size; k++) {
    if (step.best_tokens[first + k] == end) return kMayEnd;
  }
  return kGoesOn;
}

// Records the hypotheses of a sentence that end, and puts the best candidates behind the first K that do not end in
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
    endings.sentences[i] = b;
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

void advance(SearchState& state, const int64_t* parents) {
  for (int32_t b = 0; b < state.num_sentences; b++) {
    state.sentences[b]->num_steps++;
    if (state.beam_size > 1) {
      reorder(*state.sentences[b], state.beam_size, parents + static_cast<size_t>(b) * state.beam_size);
    }
  }
  state.awaits_advance = false;
}

Status run_ahead(SearchState& state, const Step& step, const Beams& beams, int64_t end, int32_t most, int64_t* parents,
                 uint8_t* marks, int32_t& num_extended) {
  Step next = step;
  next.num_edits = 0;
  next.tokens = beams.newest;
  if (beams.beam_size > 1) next.scores = beams.scores;
  for (num_extended = 0;; num_extended++) {
    if (const Status status = take_step(state, next)) return status;
    if (num_extended == most) return kOk;
    for (int32_t b = 0; b < state.num_sentences; b++) {
      if (beams.num_steps[b] + 2 >= beams.num_columns || mark_of(next, b, beams, end) != kGoesOn) return kOk;
    }
    extend_beams(next, state.num_sentences, beams, end, parents, marks, nullptr);
    advance(state, parents);
  }
}

Status take_step(SearchState& state, const Step& step) {
  if (!is_valid(state, step)) return kWrongArgument;
  Model& model = *state.model;
  state.is_broken = true;
  int num_rows;
  if (!list_rows(state, step, num_rows)) return kNoMemory;
  const int num_rankings = state.common.num_tokens ? 2 * num_rows : num_rows;
  const size_t num_best = static_cast<size_t>(num_rankings) * step.num_candidates;
  if (!model.rankings.reserve(num_rankings) || !model.logits.reserve(num_best) || !model.tokens.reserve(num_best))
    return kNoMemory;
  for (int i = 0; i < num_rankings; i++) {
    model.rankings[i].logits = model.logits.data() + static_cast<size_t>(i) * step.num_candidates;
    model.rankings[i].tokens = model.tokens.data() + static_cast<size_t>(i) * step.num_candidates;
  }
  Ranking *rankings = model.rankings.data(), *own = num_rankings > num_rows ? rankings + num_rows : nullptr;
  Rows states;
  if (!list_edits(state, step, num_rows, rankings, own)) return kNoMemory;
  if (!decode(model, state.rows.data(), num_rows, states, nullptr)) return kNoMemory;
  rank_rows(state, states, num_rows, step.num_candidates, rankings, own);
  for (int b = 0, row = 0; b < state.num_sentences; b++) {
    int count = 0;
    while (row + count < num_rows && state.rows[row + count].sentence == state.sentences[b]) count++;
    merge(state, step, b, row, count);
    row += count;
  }
  state.is_broken = false;
  state.awaits_advance = true;
  return kOk;
}

}  // namespace dragoman
