"""A configuration holds dimensions that a model can have."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from model.config import ModelConfig, NormPlacement


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 16, "num_heads": 5}, r"d_model is 16, it must be a multiple of num_heads \(5\)"),
        ({"num_decoder_layers": 0}, "num_decoder_layers is 0, at least 1 is needed"),
        *(({"d_ff": value}, f"d_ff is {value!r}, it must be an integer") for value in (512.0, True, "512", None)),
        ({"norm_placement": "none"}, "none"),
    ],
)
def test_impossible_dimensions_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields)


def test_a_config_survives_json():
    config = ModelConfig(d_model=16, norm_placement=NormPlacement.POST)

    assert ModelConfig(**json.loads(json.dumps(asdict(config)))) == config
