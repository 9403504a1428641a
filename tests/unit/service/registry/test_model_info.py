"""What a bundle says of its model: description and tokenizer."""

from dataclasses import replace
from importlib.resources import files
from typing import get_args

import pytest

from model.bundle import Bundle
from model.manifest import GPU_PRECISION, PREFERRED_PRECISIONS, DecodingDefaults
from service.engine.spec import Device
from service.records import TranslateOptions
from service.registry.model_info import describe
from tests.fakes.echo_bundle import write_echo_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    return Bundle.load(write_echo_bundle(tmp_path_factory.mktemp("bundles") / "echo"))


def test_a_bundle_describes_itself(bundle):
    info = describe(bundle)

    assert (info.name, info.version, info.precision, info.device) == ("echo", "1.2.3", "fp32", "cpu")
    assert (info.source_language, info.target_language, info.max_source_tokens) == ("en", "de", 512)
    assert info.default_options == TranslateOptions(
        beam_size=2,
        num_hypotheses=1,
        length_penalty=1.0,
        patience=1.0,
        max_target_tokens=256,
        use_shortlist=False,
        allow_smaller_beam=False,
    )


def test_precision_and_largest_beam_are_those_that_are_asked_for(bundle):
    wide = replace(bundle, manifest=replace(bundle.manifest, decoding=DecodingDefaults(beam_size=40)))

    info = describe(wide, "int8", max_beam_size=7)

    assert (info.precision, info.max_beam_size, info.default_options.beam_size) == ("int8", 7, 7)


def test_contract_names_every_precision_and_device_of_a_model():
    contract = files("protos").joinpath("translation.proto").read_text(encoding="utf-8")
    model = contract.partition("message Model {")[2].partition("}")[0]
    of_precision, _, rest = model.partition("string precision")
    of_device = rest.partition("string device")[0]

    assert [name for name in (*PREFERRED_PRECISIONS, GPU_PRECISION) if f'"{name}"' not in of_precision] == []
    assert [name for name in get_args(Device) if f'"{name}"' not in of_device] == []
