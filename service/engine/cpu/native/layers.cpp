#include "layers.h"

#include <string.h>

#include <algorithm>

namespace dragoman {
namespace {

constexpr int kInnerRows = 72;  // that the feed-forward network takes at a time: what is between stays in cache

int32_t newest_of(const DecoderRow& row) { return row.columns[row.num_columns - 1]; }

class Layers {
 public:
  explicit Layers(Model& model) : model_(model) {}

  [[nodiscard]] bool reserve(size_t num_rows, size_t most_columns) {
    const size_t widest = width_ > attention_width_ ? width_ : attention_width_;
    const size_t inner = header_.inner_width, num_padded = round_up(most_columns, kPanel);
    const size_t num_weights = num_padded * (header_.num_heads > 4 ? header_.num_heads : 4);
    return model_.states.reserve(num_rows * width_) && model_.wide.reserve(num_rows * 3 * attention_width_) &&
           model_.mixed.reserve(num_rows * attention_width_) && model_.inputs.reserve(num_rows * widest) &&
           model_.integers.reserve(num_rows * widest) && model_.scales.reserve(num_rows) &&
           model_.hidden.reserve(kInnerRows * inner * (header_.is_gated ? 2 : 1)) &&
           model_.hidden_integers.reserve(kInnerRows * inner) && model_.hidden_scales.reserve(kInnerRows) &&
           model_.weights.reserve(num_weights) && model_.keys.reserve(num_padded * attention_width_ * sizeof(float)) &&
           (!header_.relative_distance || model_.bias.reserve(2 * header_.num_heads * most_columns));
  }

  float* states() { return model_.states.data(); }

  // [M, width] as the inputs of a product, after a norm unless it is null.
  Rows inputs_of(const Linear& linear, const float* values, int num_rows, int width, const Norm* norm) {
    if (!linear.integers && !norm) return {values, nullptr, nullptr, 0};
    float* floats = model_.inputs.data();
    for (int row = 0; row < num_rows; row++) {
      const size_t first = static_cast<size_t>(row) * width;
      const float* value = values + first;
      if (norm) {
        float* normalized = linear.integers ? floats : floats + first;
        kernels_.normalize(value, width, *norm, normalized);
        value = normalized;
      }
      if (linear.integers) model_.scales[row] = kernels_.quantize(value, width, false, model_.integers.data() + first);
    }
    if (!linear.integers) return {floats, nullptr, nullptr, 0};
    return {nullptr, model_.integers.data(), model_.scales.data(), kernels_.levels + 1};
  }

  void normalize(const Norm& norm, int num_rows) {
    for (int row = 0; row < num_rows; row++) {
      float* values = states() + static_cast<size_t>(row) * width_;
      kernels_.normalize(values, width_, norm, values);
    }
  }

  // The inputs of a sub-layer's first product: the states, normalised if norms stand first.
  Rows enter(const Linear& linear, const Norm& norm, int num_rows) {
    return inputs_of(linear, states(), num_rows, width_, header_.norms_first ? &norm : nullptr);
  }

  // Adds the outputs [M, A] of an attention, after its last product, to the states.
  void leave(const Linear& linear, const Norm& norm, const float* mixed, int num_rows) {
    const Rows rows = inputs_of(linear, mixed, num_rows, attention_width_, nullptr);
    kernels_.product(linear, rows, num_rows, states(), width_, true);
    if (!header_.norms_first) normalize(norm, num_rows);
  }

  // Attention of rows from `first` on, whose queries [M, stride] lie in `wide`, to some columns; the caller says which.
  SharedAttention attention_of(int first, int num_rows, size_t stride, int num_columns) {
    SharedAttention attention = {};
    attention.queries = model_.wide.data() + first * stride;
    attention.query_stride = stride, attention.num_queries = num_rows, attention.num_columns = num_columns;
    attention.num_heads = header_.num_heads, attention.head_width = header_.head_width;
    attention.scale = header_.attention_scale;
    attention.weights = model_.weights.data();
    attention.out = model_.mixed.data() + static_cast<size_t>(first) * attention_width_;
    attention.out_stride = attention_width_;
    return attention;
  }

  // What self-attention adds for keys that are so far before a query, one less far each (Shaw et al. 2018, Raffel et
  // al. 2020): [H, count]; null where positions are added.
  const float* relative_bias(const float* table, int distance, int count) {
    const int farthest = header_.relative_distance;
    if (!farthest) return nullptr;
    float* out = model_.bias.data();
    for (int head = 0; head < header_.num_heads; head++, table += 2 * farthest + 1) {
      for (int i = 0; i < count; i++) *out++ = table[farthest + std::clamp(distance - i, -farthest, farthest)];
    }
    return model_.bias.data();
  }

  // Self-attention of the decoder: a column for the key and value of each row, and each row over its own past.
  void attend_to_past(const DecoderLayer& layer, int number, const DecoderRow* rows, int num_rows) {
    const int stride = 3 * attention_width_;
    float *wide = model_.wide.data(), *mixed = model_.mixed.data();
    const Rows inputs = enter(layer.query_key_value, layer.own_norm, num_rows);
    kernels_.product(layer.query_key_value, inputs, num_rows, wide, stride, false);
    for (int row = 0; row < num_rows; row++) {  // all keys before any query, since rows may attend to each other
      uint8_t* column = rows[row].sentence->layer(number) + newest_of(rows[row]) * model_.column_bytes();
      model_.cache->store(wide + static_cast<size_t>(row) * stride + attention_width_, 2 * attention_width_, column);
    }
    for (int row = 0; row < num_rows; row++) {
      ColumnAttention attention = {};
      attention.query = wide + static_cast<size_t>(row) * stride;
      attention.cache = rows[row].sentence->layer(number);
      attention.columns = rows[row].columns, attention.num_columns = rows[row].num_columns;
      attention.num_heads = header_.num_heads, attention.head_width = header_.head_width;
      attention.scale = header_.attention_scale;
      attention.bias = relative_bias(model_.target_bias, rows[row].num_columns - 1, rows[row].num_columns);
      attention.weights = model_.weights.data();
      attention.out = mixed + static_cast<size_t>(row) * attention_width_;
      model_.cache->attend_columns(attention);
    }
    leave(layer.own_output, layer.own_norm, mixed, num_rows);
  }

  // The recurrent unit in its place: a column holds a cell [D], and a row reads that of its parent.
  void recur(const DecoderLayer& layer, int number, const DecoderRow* rows, int num_rows) {
    float* wide = model_.wide.data();
    const Rows inputs = enter(layer.input_forget, layer.own_norm, num_rows);
    kernels_.product(layer.input_forget, inputs, num_rows, wide, 2 * width_, false);
    for (int row = 0; row < num_rows; row++) {
      uint8_t* cache = rows[row].sentence->layer(number);
      const auto cell_of = [&](int column) { return reinterpret_cast<float*>(cache + column * model_.column_bytes()); };
      const int length = rows[row].num_columns;
      const float* parent = length > 1 ? cell_of(rows[row].columns[length - 2]) : nullptr;
      const size_t first = static_cast<size_t>(row) * width_;
      kernels_.recur(wide + 2 * first, parent, width_, cell_of(newest_of(rows[row])), states() + first);
    }
    if (!header_.norms_first) normalize(layer.own_norm, num_rows);
  }

  void feed_forward(const FeedForward& layer, int num_rows) {
    const int inner = header_.inner_width, stride = layer.inner.num_outputs;
    const auto activation = static_cast<Activation>(header_.activation);
    const bool is_positive = activation == Activation::kRelu && !header_.is_gated;
    float* hidden = model_.hidden.data();
    const Rows rows = enter(layer.inner, layer.norm, num_rows);
    for (int first = 0; first < num_rows; first += kInnerRows) {
      const int count = num_rows - first < kInnerRows ? num_rows - first : kInnerRows;
      kernels_.product(layer.inner, rows_from(rows, first, width_), count, hidden, stride, false);
      for (int row = 0; row < count; row++) {
        float* values = hidden + static_cast<size_t>(row) * stride;  // of a gated network, [2, F]
        kernels_.activate(values, header_.is_gated ? values + inner : nullptr, inner, activation);
        if (layer.outer.integers) {
          uint8_t* integers = model_.hidden_integers.data() + static_cast<size_t>(row) * inner;
          model_.hidden_scales[row] = kernels_.quantize(values, inner, is_positive, integers);
        } else if (stride != inner) {
          memmove(hidden + static_cast<size_t>(row) * inner, values, inner * sizeof(float));
        }
      }
      Rows hidden_rows = {hidden, nullptr, nullptr, 0};
      if (layer.outer.integers) {
        const int zero = is_positive ? 0 : kernels_.levels + 1;
        hidden_rows = {nullptr, model_.hidden_integers.data(), model_.hidden_scales.data(), zero};
      }
      kernels_.product(layer.outer, hidden_rows, count, states() + static_cast<size_t>(first) * width_, width_, true);
    }
    if (!header_.norms_first) normalize(layer.norm, num_rows);
  }

 private:
  Model& model_;
  const Header& header_ = model_.header;
  const Kernels& kernels_ = *model_.kernels;
  const int width_ = header_.width, attention_width_ = model_.attention_width();
};

}  // namespace

Linear slice(const Linear& linear, int first, int count) {
  const size_t weights = static_cast<size_t>(first) * linear.num_inputs;
  Linear part = linear;
  part.num_outputs = count, part.bias += first;
  if (part.integers) part.integers += weights, part.scales += first, part.sums += first;
  if (part.floats) part.floats += weights;
  return part;
}

Rows rows_from(const Rows& rows, int first, int width) {
  const size_t offset = static_cast<size_t>(first) * width;
  if (rows.floats) return {rows.floats + offset, nullptr, nullptr, 0};
  return {nullptr, rows.integers + offset, rows.scales + first, rows.zero};
}

bool encode(Model& model, const int32_t* ids, Source* const* sources, int num_sources, float* head_weights) {
  const Header& header = model.header;
  const Kernels& kernels = *model.kernels;
  const int width = header.width, attention_width = model.attention_width(), stride = 3 * attention_width;
  int num_rows = 0, longest = 0;
  for (int b = 0; b < num_sources; b++) {
    Source& source = *sources[b];
    if (!source.memory.reserve(source.layer_bytes() * header.num_decoder_layers)) return false;
    num_rows += source.num_columns;
    longest = std::max(longest, source.num_columns);
  }
  Layers layers(model);
  if (!layers.reserve(num_rows, longest)) return false;
  for (int b = 0, row = 0; b < num_sources; b++) {
    for (int s = 0; s < sources[b]->num_columns; s++, row++) {
      float* states = layers.states() + static_cast<size_t>(row) * width;
      const size_t first = static_cast<size_t>(s) * width;
      const float* position = model.source_positions ? model.source_positions + first : nullptr;
      kernels.embed(model.source_table, ids[row], position, width, states);
    }
  }
  if (header.has_embedding_norm) layers.normalize(model.source_embedding_norm, num_rows);

  for (int i = 0; i < header.num_encoder_layers; i++) {
    const EncoderLayer& layer = model.encoder[i];
    const Rows rows = layers.enter(layer.query_key_value, layer.norm, num_rows);
    kernels.product(layer.query_key_value, rows, num_rows, model.wide.data(), stride, false);
    for (int b = 0, row = 0; b < num_sources; row += sources[b++]->num_columns) {
      const int count = sources[b]->num_columns;
      SharedAttention attention = layers.attention_of(row, count, stride, count);
      const float *keys = attention.queries + attention_width, *values = keys + attention_width;
      kernels.floats.transpose(keys, stride, count, attention_width, model.keys.data());
      attention.keys = model.keys.data(), attention.values = values, attention.value_stride = stride;
      attention.bias = layers.relative_bias(model.source_bias, count - 1, 2 * count - 1);
      attention.head_weights = head_weights;
      kernels.floats.attend_shared(attention);
    }
    if (head_weights) head_weights += static_cast<size_t>(header.num_heads) * num_rows * num_rows;
    layers.leave(layer.output, layer.norm, model.mixed.data(), num_rows);
    layers.feed_forward(layer.feed_forward, num_rows);
  }

  // Keys and values for the decoder, layer by layer.
  const Norm* norm = header.has_final_norm ? &model.encoder_norm : nullptr;
  const Rows memory = layers.inputs_of(model.cross_key_value, layers.states(), num_rows, width, norm);
  for (int layer = 0; layer < header.num_decoder_layers; layer++) {
    const Linear part = slice(model.cross_key_value, 2 * attention_width * layer, 2 * attention_width);
    kernels.product(part, memory, num_rows, model.wide.data(), stride, false);
    for (int b = 0, row = 0; b < num_sources; row += sources[b++]->num_columns) {
      Source& source = *sources[b];
      const float* keys = model.wide.data() + static_cast<size_t>(row) * stride;
      model.cache->transpose(keys, stride, source.num_columns, attention_width, source.keys(layer));
      for (int s = 0; s < source.num_columns; s++) {
        const float* values = keys + static_cast<size_t>(s) * stride + attention_width;
        model.cache->store(values, attention_width, source.values(layer) + s * source.row_bytes());
      }
    }
  }
  return true;
}

bool decode(Model& model, const DecoderRow* rows, int num_rows, Rows& states, float* head_weights) {
  const Header& header = model.header;
  const Kernels& kernels = *model.kernels;
  const int width = header.width, attention_width = model.attention_width();
  int most_columns = 1;
  for (int row = 0; row < num_rows; row++) {
    most_columns = std::max({most_columns, rows[row].num_columns, rows[row].sentence->source->num_columns});
  }
  Layers layers(model);
  if (!layers.reserve(num_rows, most_columns)) return false;
  for (int row = 0; row < num_rows; row++) {
    const size_t first = static_cast<size_t>(rows[row].position) * width;
    const float* position = model.target_positions ? model.target_positions + first : nullptr;
    kernels.embed(model.target_table, rows[row].token, position, width,
                  layers.states() + static_cast<size_t>(row) * width);
  }
  if (header.has_embedding_norm) layers.normalize(model.target_embedding_norm, num_rows);

  for (int i = 0; i < header.num_decoder_layers; i++) {
    const DecoderLayer& layer = model.decoder[i];
    if (header.is_recurrent) {
      layers.recur(layer, i, rows, num_rows);
    } else {
      layers.attend_to_past(layer, i, rows, num_rows);
    }

    const Rows inputs = layers.enter(layer.cross_query, layer.cross_norm, num_rows);
    kernels.product(layer.cross_query, inputs, num_rows, model.wide.data(), attention_width, false);
    for (int row = 0, count; row < num_rows; row += count) {
      Source& source = *rows[row].sentence->source;
      for (count = 1; row + count < num_rows && rows[row + count].sentence == rows[row].sentence;) count++;
      SharedAttention attention = layers.attention_of(row, count, attention_width, source.num_columns);
      attention.keys = source.keys(i), attention.values = source.values(i), attention.value_stride = attention_width;
      attention.head_weights = head_weights;
      model.cache->attend_shared(attention);
      if (head_weights) head_weights += static_cast<size_t>(header.num_heads) * num_rows * source.num_columns;
    }
    layers.leave(layer.cross_output, layer.cross_norm, model.mixed.data(), num_rows);
    layers.feed_forward(layer.feed_forward, num_rows);
  }
  const Norm* norm = header.has_final_norm ? &model.decoder_norm : nullptr;
  states = layers.inputs_of(model.projection, layers.states(), num_rows, width, norm);
  return true;
}

}  // namespace dragoman
