"""How much may run at once on a GPU: what its memory holds.  Pure; knows the model's sizes."""

from dataclasses import replace

from model.config import ModelConfig
from service.engine.runner import CacheShape
from service.engine.scheduler import SchedulerConfig

_USABLE = 0.8  # of the free memory; the rest is for workspaces of products and for what memory in pieces loses
_MEMORIES = 2  # slots and columns are a third more than sentences need each, and so is their memory
_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 as logits, edited, log-probabilities
_ENCODER_FACTOR = 16  # activations of a token in the encoder, in widths of the model


def fitting_budgets(
    wanted: SchedulerConfig, free_bytes: int, config: ModelConfig, max_target_tokens: int, bytes_each: int = 2
) -> SchedulerConfig:
    """Return the wanted budgets, cut down to what half, a quarter and a quarter of the usable memory hold."""
    usable = int(_USABLE * free_bytes)
    shape = CacheShape.of(config)
    column_bytes = 2 * shape.num_layers * shape.column_size * bytes_each  # keys and values of a position in all layers
    # A hypothesis has its own column of every step, the same beside it, and its logits.
    row_bytes = _MEMORIES * max_target_tokens * column_bytes + _LOGIT_BYTES * config.num_logits
    # A position takes this while the encoder runs, and its keys and values after that.
    encoded_bytes = max(shape.column_size * _ENCODER_FACTOR, 4 * config.d_ff) * bytes_each + column_bytes

    def at_most(budget: int, fits: int) -> int:
        return max(1, min(budget, fits))

    encoded = usable // 4 // encoded_bytes
    return replace(
        wanted,
        max_rows=at_most(wanted.max_rows, usable // 2 // row_bytes),
        max_source_tokens=at_most(wanted.max_source_tokens, usable // 4 // (_MEMORIES * column_bytes)),
        max_encode_tokens=at_most(wanted.max_encode_tokens, encoded),
        max_ahead_tokens=at_most(wanted.max_ahead_tokens, encoded),
        encoder_run_tokens=at_most(wanted.encoder_run_tokens, encoded),
    )
