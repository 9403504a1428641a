"""Whether this machine can serve: one finding per check, each with what was found and what to do about it.

Looks at the machine and the installation; starts no server.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import metadata, util
from pathlib import Path
from textwrap import shorten

from service.engine.instructions import INT8_FLAGS, cpu_flags
from service.engine.job import FinishReason
from service.errors import DragomanError
from service.extras import how_to_install
from service.grpc.listening import Address, ListenError
from service.records import TranslateOptions
from service.registry.repository import BundleCandidate, BundleSource
from service.threads import affine_cpus, available_threads, cpu_quota

_MIN_OPEN_FILES = 1_024
_TEST_SENTENCES = {"de": "Das Wetter ist heute schön."}  # by source language
_TEST_SENTENCE = "The weather is nice today."  # of all others
_TEST_MAX_TOKENS = 50


class Level(StrEnum):
    """How bad a finding is."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    level: Level
    subject: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is to be served, and where."""

    source: BundleSource
    precision: str | None = None
    grpc: tuple[str, int]  # host, port
    http: tuple[str, int]
    admin: tuple[str, int] | None = None  # None: no such port


def examine(target: Target) -> Iterator[Finding]:
    """All findings, each as soon as it is known; a check that breaks is a failure, not an exception."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", check_python),
        ("onnxruntime", check_runtime),
        ("torch", check_torch),
        ("instructions", lambda: check_instructions(cpu_flags())),
        ("threads", check_threads),
        ("open files", check_open_files),
        ("grpc port", lambda: check_port("grpc port", *target.grpc)),
        ("http port", lambda: check_port("http port", *target.http)),
    ]
    if (admin := target.admin) is not None:
        checks.append(("admin port", lambda: check_port("admin port", *admin)))
    for subject, check in checks:
        yield _finding(subject, check)
    yield from _examine_models(target)


def _examine_models(target: Target) -> Iterator[Finding]:
    """Of each name the version that would serve, which is the first good one."""
    try:
        candidates = target.source.scan()
    except ValueError as error:  # RepositoryError
        yield Finding(Level.FAIL, "bundle", str(error))
        return
    for found in candidates.values():
        for candidate in found:
            bundle = _finding("bundle", partial(check_bundle, candidate))
            yield bundle
            if bundle.level is not Level.FAIL:
                yield _finding("model", partial(check_model, candidate.directory, target.precision))
                break


def _finding(subject: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever breaks is the finding
        detail = str(error) if isinstance(error, ValueError | DragomanError) else f"{type(error).__name__}: {error}"
        return Finding(Level.FAIL, subject, detail)


def check_python() -> Finding:
    """Whether this Python is one the project is tested with."""
    version = platform.python_version()
    is_tested = (3, 11) <= sys.version_info[:2] <= (3, 13)
    level = Level.PASS if is_tested else Level.WARN
    return Finding(level, "python", f"{version}{'' if is_tested else ' is not tested; use 3.11 - 3.13'}")


def check_runtime() -> Finding:
    """Whether ONNX Runtime is there, once."""
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _is_installed(name)]
    if not installed:
        return Finding(Level.FAIL, "onnxruntime", f"not installed: {how_to_install('cpu')}")
    if len(installed) > 1:
        detail = "onnxruntime and onnxruntime-gpu overwrite each other: uninstall both, then install one"
        return Finding(Level.FAIL, "onnxruntime", detail)
    import onnxruntime

    if installed == ["onnxruntime-gpu"]:
        detail = f"{onnxruntime.__version__}, with CUDA for models that have fp16 graphs"
        return Finding(Level.PASS, "onnxruntime", detail)
    return Finding(Level.PASS, "onnxruntime", f"{onnxruntime.__version__}, on the CPU")


def check_torch() -> Finding:
    """Whether the environment is the lean one that serving needs."""
    if util.find_spec("torch") is None:
        return Finding(Level.PASS, "torch", "absent, as it should be where models are only served")
    return Finding(Level.WARN, "torch", "installed; serving never imports it, a lean environment needs no torch")


def check_instructions(flags: frozenset[str]) -> Finding:
    """Whether the CPU multiplies int8 fast."""
    machine = platform.machine()
    found = [flag for flag in INT8_FLAGS if flag in flags]
    if found:
        return Finding(Level.PASS, "instructions", f"{machine} with {', '.join(found)}")
    widest = next((flag for flag in ("avx512f", "avx2", "avx") if flag in flags), "no vector extension that is known")
    detail = f"{machine} with {widest}, no int8 dot products: int8 translates as well as elsewhere, only slower"
    return Finding(Level.WARN, "instructions", detail)


def check_threads() -> Finding:
    """How many threads there are, and what limits them."""
    quota = cpu_quota()
    host, affinity, usable = os.cpu_count() or 1, affine_cpus(), available_threads()
    limits = f"host {host}, affinity {affinity}, cgroup quota {'none' if quota is None else f'{quota:g}'}"
    if quota is not None and quota < 1:
        return Finding(Level.WARN, "threads", f"{usable} ({limits}): less than one CPU, expect pauses")
    return Finding(Level.PASS, "threads", f"{usable} ({limits})")


def check_open_files() -> Finding:
    """Whether enough connections can be open at once."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MIN_OPEN_FILES:
        detail = f"{soft} allowed, {_MIN_OPEN_FILES} or more are good for a server: ulimit -n {_MIN_OPEN_FILES}"
        return Finding(Level.WARN, "open files", detail)
    return Finding(Level.PASS, "open files", "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} allowed")


def check_port(subject: str, host: str, port: int) -> Finding:
    """Whether a server could listen there now."""
    address = Address(host, port)
    try:
        address.check_free(subject)
    except ListenError as error:
        return Finding(Level.FAIL, subject, str(error))
    return Finding(Level.PASS, subject, f"{address} is free")


def check_bundle(candidate: BundleCandidate) -> Finding:
    """Whether every file of the model is what its manifest says, and it is the one that its directory says."""
    from model.bundle import Bundle
    from service.registry.bundle_check import check_identity

    bundle = Bundle.load(candidate.directory)
    check_identity(bundle, candidate)
    manifest = bundle.manifest
    present = [entry for file, entry in manifest.files.items() if bundle.path(file).exists()]  # weights may be absent
    megabytes = sum(entry.bytes for entry in present) / 1e6
    name = f"{manifest.name} {manifest.version} ({manifest.source_language}-{manifest.target_language})"
    variants = ", ".join(sorted(manifest.variants))
    return Finding(
        Level.PASS, "bundle", f"{name}: {len(present)} files, {megabytes:.1f} MB, {variants}; checksums match"
    )


def check_model(directory: Path, precision: str | None) -> Finding:
    """Whether the model loads here and translates."""
    from service.local import LocalTranslator

    translator = LocalTranslator.open(directory, precision=precision)
    limit = min(_TEST_MAX_TOKENS, translator.info.default_options.max_target_tokens or _TEST_MAX_TOKENS)
    sentence = _TEST_SENTENCES.get(translator.info.source_language.lower(), _TEST_SENTENCE)
    (translation,) = translator.translate_all([sentence], TranslateOptions(max_target_tokens=limit))
    detail = f"{translator.info.precision}: {sentence!r} -> {shorten(translation.text, 80)!r}"
    if translation.hypotheses[0].finish_reason is FinishReason.LENGTH:
        return Finding(Level.WARN, "model", f"{detail}, without an end: is it trained?")
    return Finding(Level.PASS, "model", detail)


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
