"""`dragoman doctor`: checks the machine and the installation, and says what to do; starts no server."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib import metadata
from pathlib import Path
from textwrap import shorten
from typing import Annotated

import typer

from service.addresses import ListenError
from service.cli.options import AsJson, BundleDir, ConfigFile, Precision, bundle_dir, ranged, with_examples
from service.cli.output import EXIT_SOME_FAILED
from service.config import ServerConfig, load_config
from service.engine.choice import library_problem, probe
from service.engine.cpu.native.library import instruction_set
from service.engine.wire import FinishReason
from service.errors import DragomanError
from service.extras import how_to_install
from service.models.repository import BundleCandidate, BundleSource, bundle_source
from service.ranges import ANY_PORT
from service.records import TranslateOptions
from service.server.checks import addresses, check_files, check_ports
from service.server.process import MIN_OPEN_FILES
from service.threads import affine_cpus, available_threads, cpu_quota

_TEST_SENTENCES = {"de": "Das Wetter ist heute schön."}  # by source language
_TEST_SENTENCE = "The weather is nice today."  # of all others
_TEST_MAX_TOKENS = 50


@with_examples("dragoman doctor", "dragoman doctor --bundle ./my-model --port 50052 --json")
def doctor(
    config: ConfigFile = None,
    bundle: BundleDir = None,
    precision: Precision = None,
    port: Annotated[int | None, ranged(ANY_PORT, help="gRPC port to look at.  [default: 50051]")] = None,
    http_port: Annotated[int | None, ranged(ANY_PORT, help="HTTP port to look at.  [default: 8080]")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine can serve: runtime, CPU, threads, ports, files, model.

    Exit code 0 if nothing failed; warnings do not fail.
    """
    settings = load_config(
        config,
        {
            "engine.bundle": bundle_dir(bundle),
            "engine.precision": precision,
            "listen.grpc_port": port,
            "listen.http_port": http_port,
        },
    )
    findings = []
    for finding in examine(settings):
        findings.append(finding)
        if not as_json:
            color = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "red"}[finding.level]
            typer.echo(f"{typer.style(finding.level.upper(), fg=color)}  {finding.subject}: {finding.detail}")
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(EXIT_SOME_FAILED)


class Level(StrEnum):
    """Severity of a finding."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was found and what to do about it."""

    level: Level
    subject: str
    detail: str


def examine(settings: ServerConfig) -> Iterator[Finding]:
    """Yield each finding as soon as it is known; a check that breaks is a failure, not an exception."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("onnxruntime", check_runtime),
        *([("device", partial(check_device, settings.engine.device))] if settings.engine.device != "cpu" else []),
        ("native engine", partial(check_native_engine, settings.engine.runtime)),
        ("threads", check_threads),
        ("open files", check_open_files),
        ("ports", partial(check_addresses, settings)),
        ("files", partial(check_named_files, settings)),
    ]
    for subject, check in checks:
        yield _finding(subject, check)
    yield from _examine_models(bundle_source(settings), settings.engine.precision)


def _examine_models(source: BundleSource, precision: str | None) -> Iterator[Finding]:
    """Check the version of each model that would serve, which is the first valid one."""
    try:
        candidates = source()
    except ValueError as error:  # RepositoryError
        yield Finding(Level.FAIL, "bundle", str(error))
        return
    for found in candidates.values():
        for candidate in found:
            bundle = _finding("bundle", partial(check_bundle, candidate))
            yield bundle
            if bundle.level is not Level.FAIL:
                yield _finding("model", partial(check_model, candidate.directory, precision))
                break


def _finding(subject: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever breaks is the finding
        detail = (
            str(error)
            if isinstance(error, ValueError | DragomanError | ListenError)
            else f"{type(error).__name__}: {error}"
        )
        return Finding(Level.FAIL, subject, detail)


def check_runtime() -> Finding:
    """Check that one ONNX Runtime is installed, not two."""
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


def check_device(setting: str) -> Finding:
    """Check that the GPU which `engine.device` asks for can be used."""
    problem = probe()
    if not problem:
        return Finding(Level.PASS, "device", "CUDA works, for models that have fp16 graphs")
    if setting == "auto":
        return Finding(Level.WARN, "device", f"the server will use the CPU: {problem}")
    return Finding(Level.FAIL, "device", f"CUDA cannot be used: {problem}")


def check_native_engine(setting: str) -> Finding:
    """Check that the native engine can run here, unless `engine.runtime` asks for ONNX Runtime."""
    problem = library_problem()
    if setting == "onnxruntime":
        detail = (
            f"there is none: {problem}" if problem else f"has {instruction_set()}; engine.runtime keeps it from serving"
        )
        return Finding(Level.PASS, "native engine", detail)
    if problem:
        level = Level.FAIL if setting == "native" else Level.WARN
        return Finding(level, "native engine", f"there is none; ONNX Runtime is about half as fast: {problem}")
    return Finding(Level.PASS, "native engine", f"serves, with {instruction_set()} instructions")


def check_threads() -> Finding:
    """Report how many threads there are, and what limits them."""
    quota = cpu_quota()
    host, affinity, usable = os.cpu_count() or 1, affine_cpus(), available_threads()
    limits = f"host {host}, affinity {affinity}, cgroup quota {'none' if quota is None else f'{quota:g}'}"
    if quota is not None and quota < 1:
        return Finding(Level.WARN, "threads", f"{usable} ({limits}): less than one CPU, expect pauses")
    return Finding(Level.PASS, "threads", f"{usable} ({limits})")


def check_open_files() -> Finding:
    """Check that enough connections can be open at once."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # a server raises its soft limit to this one
    if hard != resource.RLIM_INFINITY and hard < MIN_OPEN_FILES:
        detail = f"{hard} allowed, {MIN_OPEN_FILES} or more are good for a server: ulimit -Hn {MIN_OPEN_FILES}"
        return Finding(Level.WARN, "open files", detail)
    return Finding(Level.PASS, "open files", "unlimited" if hard == resource.RLIM_INFINITY else f"{hard} allowed")


def check_addresses(settings: ServerConfig) -> Finding:
    """Check that a server could listen on all its ports now."""
    check_ports(settings)
    return Finding(Level.PASS, "ports", f"free: {', '.join(map(str, addresses(settings).values()))}")


def check_named_files(settings: ServerConfig) -> Finding:
    """Check the certificates, keys, glossaries and other files that the settings name."""
    problems = list(check_files(settings))
    return Finding(
        Level.FAIL if problems else Level.PASS, "files", "; ".join(problems) or "those of the settings are good"
    )


def check_bundle(candidate: BundleCandidate) -> Finding:
    """Check every file of the model against its manifest, and its name against its directory."""
    from model.bundle import Bundle
    from service.models.repository import check_identity

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
    """Check that the model loads here and translates."""
    from service.local import LocalTranslator

    translator = LocalTranslator.open(directory, precision=precision)
    limit = min(_TEST_MAX_TOKENS, translator.info.default_options.max_target_tokens or _TEST_MAX_TOKENS)
    sentence = _TEST_SENTENCES.get(translator.info.source_language.lower(), _TEST_SENTENCE)
    (translation,) = translator.translate_all([sentence], TranslateOptions(max_target_tokens=limit))
    info = translator.info
    detail = (
        f"{info.precision} in {info.runtime} ({info.runtime_detail}): {sentence!r} -> {shorten(translation.text, 80)!r}"
    )
    if translation.hypotheses[0].finish_reason is not FinishReason.END_OF_SENTENCE:
        return Finding(Level.WARN, "model", f"{detail}, without an end: is it trained?")
    return Finding(Level.PASS, "model", detail)


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
