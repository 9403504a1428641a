"""How much a GPU's memory lets run at once.  Pure: is told how much is free."""

from dataclasses import dataclass, replace

from service.engine.scheduler import SchedulerConfig
from service.engine.slots import CacheShape

USABLE = 0.8  # of the free memory; the rest is for workspaces of products and for what memory in pieces loses
_MEMORIES = 3  # keys and values are moved from one memory to another, and a larger one is made beside both
_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 as logits, edited, log-probabilities
_ENCODER_FACTOR = 16  # activations of a token in the encoder, in widths of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """What a model takes on the device."""

    shape: CacheShape
    vocab_size: int
    d_ff: int
    max_target_tokens: int
    bytes_each: int = 2  # of a key's or value's number

    @property
    def column_bytes(self) -> int:
        """Keys and values of one position in all layers."""
        return 2 * self.shape.num_layers * self.shape.column_size * self.bytes_each

    @property
    def row_bytes(self) -> int:
        """A live hypothesis: its own column of every step, the same beside it, and its logits."""
        return _MEMORIES * self.max_target_tokens * self.column_bytes + _LOGIT_BYTES * self.vocab_size

    @property
    def source_token_bytes(self) -> int:
        """A position of a running sentence's source."""
        return _MEMORIES * self.column_bytes

    @property
    def encoded_token_bytes(self) -> int:
        """A position while the encoder runs, and its outcome."""
        width = max(self.shape.column_size * _ENCODER_FACTOR, 4 * self.d_ff)
        return width * self.bytes_each + self.column_bytes


def fitting(wanted: SchedulerConfig, free_bytes: int, model: DeviceModel) -> SchedulerConfig:
    """The wanted budgets, cut down to what the free memory (weights are loaded already) can hold.

    Half of the usable memory is for hypotheses, a quarter for sources, a quarter for the encoder.
    """
    usable = int(USABLE * free_bytes)
    encoded = usable // 4 // model.encoded_token_bytes
    return replace(
        wanted,
        max_rows=_at_most(wanted.max_rows, usable // 2 // model.row_bytes),
        max_source_tokens=_at_most(wanted.max_source_tokens, usable // 4 // model.source_token_bytes),
        max_encode_tokens=_at_most(wanted.max_encode_tokens, encoded),
        max_ahead_tokens=_at_most(wanted.max_ahead_tokens, encoded),
        encoder_run_tokens=_at_most(wanted.encoder_run_tokens, encoded),
    )


def _at_most(wanted: int, fits: int) -> int:
    return max(1, min(wanted, fits))
