#include "search_state.h"

#include <math.h>

namespace dragoman {
namespace {

bool is_valid(const SearchState& state, const Step& step) {
  const Header& header = state.model->header;
  const int64_t num_rows = static_cast<int64_t>(state.num_sentences) * state.beam_size;
  if (state.awaits_advance || state.is_broken || step.num_candidates < 1 || step.num_candidates > kMostCandidates)
    return false;
  if (!are_within(step.tokens, num_rows, header.num_target_tokens)) return false;
  for (int32_t i = 0; i < state.num_sentences; i++) {
    if (state.sentences[i]->num_steps >= header.num_positions) return false;
  }
  if (!are_within(step.edit_rows, step.num_edits, num_rows)) return false;
  if (!are_within(step.edit_tokens, step.num_edits, header.num_logits)) return false;
  for (int32_t i = 0; i < step.num_edits; i++) {
    if (!(step.edit_factors[i] > 0.0f)) return false;
    if (i == 0) continue;
    const int64_t order = step.edit_rows[i] - step.edit_rows[i - 1];
    if (order < 0 || (order == 0 && step.edit_tokens[i] <= step.edit_tokens[i - 1])) return false;
  }
  return true;
}

// The place of a token in a shortlist, or -1.
int32_t find(const Shortlist& list, int32_t token) {
  const int32_t *first = list.tokens.data(), *end = first + list.num_tokens;
  const int32_t* found = std::lower_bound(first, end, token);
  return found < end && *found == token ? static_cast<int32_t>(found - first) : -1;
}

// Memory for a step of so many rows and rankings at most; false where there is none.
bool reserve(SearchState& state, size_t most_rows, size_t num_rankings, const Step& step) {
  Model& model = *state.model;
  const size_t num_best = num_rankings * step.num_candidates, most_edits = 2 * static_cast<size_t>(step.num_edits);
  if (!state.rows.reserve(most_rows) || !state.hypotheses.reserve(most_rows) ||
      !state.first_rows.reserve(state.num_sentences + 1) || !state.edits.reserve(most_edits) ||
      !model.rankings.reserve(num_rankings) || !model.logits.reserve(num_best) || !model.tokens.reserve(num_best)) {
    return false;
  }
  for (size_t i = 0; i < num_rankings; i++) {
    model.rankings[i].logits = model.logits.data() + i * step.num_candidates;
    model.rankings[i].tokens = model.tokens.data() + i * step.num_candidates;
  }
  return true;
}

// The rankings of the rows among their sentences' own tokens; null where all tokens are ranked.
Ranking* own_rankings(const SearchState& state) {
  const size_t most_rows = static_cast<size_t>(state.num_sentences) * state.beam_size;
  return state.common.num_tokens ? state.model->rankings.data() + most_rows : nullptr;
}

// Gives a ranking a row's edits of a step, with the places of tokens in a list, or among all where that is null.
void list_edits(SearchState& state, const Step& step, int32_t first, int32_t end, const Shortlist* list,
                int32_t& num_edits, Ranking& ranking) {
  ranking.first_edit = num_edits;
  for (int32_t i = first; i < end; i++) {
    const auto token = static_cast<int32_t>(step.edit_tokens[i]);
    const int32_t place = list ? find(*list, token) : token;
    if (place >= 0) state.edits[num_edits++] = {place, step.edit_values[i], step.edit_factors[i]};
  }
  ranking.end_edit = num_edits;
}

// Lists the hypotheses that go on, and gives each a column and its edits; false where there is no memory.
bool list_rows(SearchState& state, const Step& step) {
  const int32_t K = state.beam_size;
  const size_t most_rows = static_cast<size_t>(state.num_sentences) * K;
  if (!reserve(state, most_rows, state.common.num_tokens ? 2 * most_rows : most_rows, step)) return false;
  Ranking *rankings = state.model->rankings.data(), *own = own_rankings(state);
  int32_t row = 0, given = 0, num_edits = 0;
  for (int32_t b = 0; b < state.num_sentences; b++) {
    Sentence& sentence = *state.sentences[b];
    const float* scores = step.scores + static_cast<size_t>(b) * K;
    const auto num_new = static_cast<int>(std::count_if(scores, scores + K, [](float x) { return x != -INFINITY; }));
    if (!make_room(sentence, num_new)) return false;
    state.first_rows[b] = row;
    for (int32_t k = 0; k < K; k++) {
      if (scores[k] == -INFINITY) continue;
      const int64_t number = static_cast<int64_t>(b) * K + k;
      sentence.extend(k, sentence.num_columns++);
      const auto token = static_cast<int32_t>(step.tokens[number]);
      state.rows[row] = {&sentence, token, sentence.num_steps, sentence.past(k), sentence.lengths[k]};
      state.hypotheses[row] = k;
      while (given < step.num_edits && step.edit_rows[given] < number) given++;  // of those that do not go on
      const int32_t first = given;
      while (given < step.num_edits && step.edit_rows[given] == number) given++;
      list_edits(state, step, first, given, own ? &state.common : nullptr, num_edits, rankings[row]);
      if (own) list_edits(state, step, first, given, &sentence.shortlist, num_edits, own[row]);
      row++;
    }
  }
  state.first_rows[state.num_sentences] = row;
  return true;
}

// Ranks the tokens of a list for some rows.
void rank_list(SearchState& state, const Shortlist& list, const Rows& rows, int num_rows, int num_candidates,
               Ranking* rankings) {
  const float* bans = state.model->bans ? list.bans.data() : nullptr;
  state.model->kernels->rank(list.projection, rows, num_rows, state.edits.data(), bans, num_candidates, rankings);
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
void rank_rows(SearchState& state, const Rows& states, int num_candidates) {
  const Model& model = *state.model;
  Ranking *rankings = state.model->rankings.data(), *own = own_rankings(state);
  const int num_rows = state.first_rows[state.num_sentences];
  if (!own) {
    model.kernels->rank(model.projection, states, num_rows, state.edits.data(), model.bans, num_candidates, rankings);
    return;
  }
  rank_list(state, state.common, states, num_rows, num_candidates, rankings);
  for (int32_t b = 0; b < state.num_sentences; b++) {
    const Shortlist& list = state.sentences[b]->shortlist;
    const int first = state.first_rows[b], count = state.first_rows[b + 1] - first;
    if (!list.num_tokens) continue;
    rank_list(state, list, rows_from(states, first, model.header.width), count, num_candidates, own + first);
    for (int row = first; row < first + count; row++) join(rankings[row], own[row], num_candidates);
  }
}

// The C best of a sentence's rows, which are sorted each; of equal ones, those of the first hypothesis.
void merge(const SearchState& state, const Step& step, int32_t b) {
  const int first_row = state.first_rows[b], count = state.first_rows[b + 1] - first_row;
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

}  // namespace

Status take_step(SearchState& state, const Step& step) {
  if (!is_valid(state, step)) return kWrongArgument;
  state.is_broken = true;
  Rows states;
  if (!list_rows(state, step)) return kNoMemory;
  if (!decode(*state.model, state.rows.data(), state.first_rows[state.num_sentences], states, nullptr))
    return kNoMemory;
  rank_rows(state, states, step.num_candidates);
  for (int32_t b = 0; b < state.num_sentences; b++) merge(state, step, b);
  state.is_broken = false;
  state.awaits_advance = true;
  return kOk;
}

void advance(SearchState& state, const int64_t* parents) {
  for (int32_t b = 0; b < state.num_sentences; b++) {
    state.sentences[b]->num_steps++;
    if (state.beam_size > 1) reorder(*state.sentences[b], parents + static_cast<size_t>(b) * state.beam_size);
  }
  state.awaits_advance = false;
}

Status score(Model& model, Source& source, int32_t num_tokens, const int32_t* inputs, const int32_t* following,
             float* log_probs, float* head_weights) {
  // Every token is a hypothesis of its own whose past are those before it.
  Sentence sentence;
  Array<DecoderRow> rows;
  if (!begin(sentence, &source, 1) || !make_room(sentence, num_tokens) || !rows.reserve(num_tokens)) return kNoMemory;
  if (!model.rankings.reserve(num_tokens) || !model.logits.reserve(num_tokens) || !model.tokens.reserve(num_tokens))
    return kNoMemory;
  for (int32_t t = 0; t < num_tokens; t++) {
    sentence.past(0)[t] = t;
    rows[t] = {&sentence, inputs[t], t, sentence.past(0), t + 1};
    model.rankings[t] = {};
    model.rankings[t].logits = model.logits.data() + t, model.rankings[t].tokens = model.tokens.data() + t;
  }
  Rows states;
  if (!decode(model, rows.data(), num_tokens, states, head_weights)) return kNoMemory;
  model.kernels->rank(model.projection, states, num_tokens, nullptr, nullptr, 1, model.rankings.data());
  for (int32_t t = 0; t < num_tokens; t++) {
    float logits[kPanel];
    const int32_t token = following[t];
    const Linear panel = slice(model.projection, token / kPanel * kPanel, kPanel);
    model.kernels->product(panel, rows_from(states, t, model.header.width), 1, logits, kPanel, false);
    log_probs[t] = logits[token % kPanel] - model.rankings[t].log_sum;
  }
  return kOk;
}

}  // namespace dragoman
