"""The precision of a training follows its device unless the caller chooses one; a device must be there."""

import pytest
import torch

from model.optimizer import PRECISIONS, choose_device, choose_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"neon": True, "bf16": True}, torch.bfloat16),
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False}, torch.float32),
    ],
)
def test_a_cpu_that_would_emulate_bf16_takes_fp32(monkeypatch, found, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)

    assert choose_precision("auto", CPU) is expected


def test_a_pytorch_that_does_not_know_the_cpu_takes_fp32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)

    assert choose_precision("auto", CPU) is torch.float32


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


@pytest.mark.parametrize(("gpus", "expected"), [(0, CPU), (2, GPU)])
def test_a_gpu_is_taken_where_there_is_one(monkeypatch, gpus, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)

    assert choose_device("auto") == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "device is 'gpu', accepted are cpu, cuda and auto"),
        ("meta", "device is 'meta', accepted are cpu, cuda and auto"),
        ("cuda:2", "device is 'cuda:2', PyTorch sees 2 GPUs"),
    ],
)
def test_a_device_that_is_not_there_is_refused(monkeypatch, name, message):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    with pytest.raises(ValueError, match=message):
        choose_device(name)
