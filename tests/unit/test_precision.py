"""The precision of a training follows its device unless the caller chooses one."""

import pytest
import torch

from model.precision import PRECISIONS, choose_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("capability", "expected"), [("AVX512", torch.bfloat16), ("AVX2", torch.float32), ("DEFAULT", torch.float32)]
)
def test_a_cpu_that_would_emulate_bf16_takes_fp32(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)

    assert choose_precision("auto", CPU) is expected


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, torch.bfloat16), (False, torch.float16)])
def test_an_old_gpu_takes_fp16(monkeypatch, has_bf16, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)

    assert choose_precision("auto", GPU) is expected


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_callers_choice_stands(name):
    assert choose_precision(name, CPU) is PRECISIONS[name]


def test_an_unknown_one_is_refused():
    with pytest.raises(ValueError, match="precision is 'fp8', accepted are fp32, bf16, fp16, auto"):
        choose_precision("fp8", CPU)
