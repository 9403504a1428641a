"""How much a GPU's memory lets run at once."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from model.config import ModelConfig
from service.engine.cuda.runner import fitting_budgets
from service.engine.wire import GPU_BUDGETS, SchedulerConfig

MODEL = ModelConfig(vocab_size=32_000, d_model=512, d_ff=2_048, num_heads=8, num_decoder_layers=6)
COLUMN_BYTES = 2 * 6 * 8 * 64 * 2  # keys and values, layers, heads, width, bytes
ROW_BYTES = 256 * COLUMN_BYTES + 32_000 * 14  # at least: its columns in all layers and its logits
GIB = 1 << 30

fitting = partial(fitting_budgets, config=MODEL, max_target_tokens=256)


@given(st.integers(0, 200 * GIB), st.integers(1, 64 * GIB))
def test_budgets_never_grow_beyond_the_wish_nor_shrink_with_more_memory(free, more):
    small, large = fitting(GPU_BUDGETS, free), fitting(GPU_BUDGETS, free + more)

    for name in GPU_BUDGETS.__slots__:
        assert 1 <= getattr(small, name) <= getattr(large, name) <= getattr(GPU_BUDGETS, name)


@given(st.integers(GIB, 200 * GIB))
def test_what_the_budgets_allow_fits_into_the_free_memory(free):
    config = fitting(SchedulerConfig(max_rows=1 << 20, max_source_tokens=1 << 30), free)

    taken = config.max_rows * 2 * ROW_BYTES + config.max_source_tokens * 2 * COLUMN_BYTES
    assert 0.3 * free < taken + config.encoder_run_tokens * COLUMN_BYTES <= free
