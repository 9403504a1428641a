"""A configuration holds dimensions that a model can have."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from model.config import Activation, ModelConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 16, "num_heads": 5}, r"d_model is 16, it must be a multiple of num_heads \(5\)"),
        ({"num_decoder_layers": 0}, "num_decoder_layers is 0, at least 1 is needed"),
        ({"max_positions": 1 << 20}, "max_positions is 1048576, at most 65536 are accepted"),
        *(({"d_ff": value}, f"d_ff is {value!r}, it must be an integer") for value in (512.0, True, "512", None)),
        ({"norm_placement": "none"}, "none"),
    ],
)
def test_impossible_dimensions_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target_vocab_size": 90}, "target_vocab_size is 90 and vocab_size 80: shared_embeddings must be false"),
        ({"target_vocab_size": 0, "shared_embeddings": False}, "target_vocab_size is 0, at least 1 is needed"),
        ({"eos_id": 80}, "eos_id is 80, at most 79 is possible: its vocabulary has 80 tokens"),
        ({"start_id": -1}, "start_id is -1, at least 0 is needed"),
        ({"suppressed_ids": [80]}, "one of suppressed_ids is 80, at most 79"),
        ({"suppressed_ids": [3]}, r"eos_id \(3\) is one of suppressed_ids: no translation could end"),
        ({"tied_projection": 1}, "tied_projection is 1, it must be true or false"),
        ({"norm_epsilon": 0.0}, "norm_epsilon is 0.0, it must be a number between 0 and 1"),
        ({"activation": "tanh"}, "tanh"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        ModelConfig(vocab_size=80, **fields)


def test_a_description_of_another_family_survives_json():
    config = ModelConfig(
        vocab_size=51,
        target_vocab_size=43,
        shared_embeddings=False,
        suppressed_ids=(42,),
        start_id=42,
        eos_id=0,
        activation=Activation.SWISH,
        final_norm=False,
    )

    assert ModelConfig(**json.loads(json.dumps(asdict(config)))) == config
    assert config.num_logits == 64
