"""The committed generated code is what the contract gives today."""

from protos import generate


def test_generated_code_is_current():
    assert generate.stale_files() == []
