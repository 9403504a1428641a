"""Each check finds what it is there for."""

import socket
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.commands import doctor
from service.commands.doctor import (
    Level,
    Target,
    check_instructions,
    check_model,
    check_port,
    check_runtime,
    check_threads,
    check_torch,
)
from service.engine.job import FinishReason
from service.models.local import LocalTranslator
from service.translation import TranslatedText, TranslateOptions, Translation


def test_a_free_port_passes_and_a_taken_one_fails():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        while_taken = check_port("grpc port", "127.0.0.1", port)
    afterwards = check_port("grpc port", "127.0.0.1", port)

    assert while_taken.level is Level.FAIL
    assert f"127.0.0.1:{port}" in while_taken.detail
    assert f"ss -ltnp 'sport = :{port}'" in while_taken.detail  # as the server itself says it
    assert afterwards.level is Level.PASS


def test_a_host_that_does_not_exist_fails_with_its_name():
    finding = check_port("grpc port", "256.1.1.1", 50_051)

    assert finding.level is Level.FAIL
    assert "256.1.1.1:50051" in finding.detail


@pytest.mark.parametrize(
    ("flags", "level", "words"),
    [
        ({"avx2", "avx512f", "avx512_vnni", "amx_int8"}, Level.PASS, "amx_int8, avx512_vnni"),
        ({"avx2", "avx_vnni"}, Level.PASS, "avx_vnni"),
        ({"fp", "asimddp"}, Level.PASS, "asimddp"),
        ({"avx", "avx2"}, Level.WARN, "with avx2, no int8 dot products"),
        (set(), Level.WARN, "no vector extension"),
    ],
)
def test_int8_without_dot_products_is_a_warning(flags, level, words):
    finding = check_instructions(frozenset(flags))

    assert finding.level is level
    assert words in finding.detail


@pytest.mark.parametrize(
    ("installed", "level", "words"),
    [
        ([], Level.FAIL, "dragoman[cpu]"),
        (["onnxruntime"], Level.PASS, "on the CPU"),
        (["onnxruntime-gpu"], Level.WARN, "GPU execution is planned"),
        (["onnxruntime", "onnxruntime-gpu"], Level.FAIL, "overwrite each other"),
    ],
)
def test_the_runtime_must_be_there_once(monkeypatch, installed, level, words):
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    finding = check_runtime()

    assert finding.level is level
    assert words in finding.detail


def test_torch_is_a_warning_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    absent = check_torch()
    monkeypatch.setattr(util, "find_spec", lambda _: object())
    present = check_torch()

    assert (absent.level, present.level) == (Level.PASS, Level.WARN)


def test_less_than_one_cpu_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 0.5)

    finding = check_threads()
    assert finding.level is Level.WARN
    assert "cgroup quota 0.5" in finding.detail


@pytest.mark.parametrize(
    ("reason", "level"), [(FinishReason.END_OF_SENTENCE, Level.PASS), (FinishReason.LENGTH, Level.WARN)]
)
def test_a_model_whose_sentence_never_ends_is_a_warning(monkeypatch, reason, level):
    class OneAnswer:
        info = SimpleNamespace(precision="int8", default_options=TranslateOptions(max_target_tokens=20))

        def translate_all(self, texts: list[str], options: TranslateOptions) -> list[Translation]:
            assert options.max_target_tokens == 20
            text = TranslatedText(text="Heute " * 50, score=-1.0, finish_reason=reason, target_tokens=20)
            return [Translation(hypotheses=(text,)) for _ in texts]

    monkeypatch.setattr(LocalTranslator, "open", lambda *_, **__: OneAnswer())
    finding = check_model(Path("anywhere"), None)

    assert finding.level is level
    assert "Heute" in finding.detail
    assert len(finding.detail) < 200


def test_a_check_that_breaks_is_a_failure_and_the_others_go_on(tmp_path):
    findings = {
        finding.subject: finding
        for finding in doctor.examine(Target(bundle=tmp_path, grpc=("127.0.0.1", 0), http=("127.0.0.1", 0)))
    }

    assert findings["bundle"].level is Level.FAIL
    assert str(tmp_path) in findings["bundle"].detail
    assert findings["model"].level is Level.FAIL
    assert findings["threads"].level is Level.PASS
