"""What the server can be told: frozen groups of settings, read once from file, environment and flags.

One home for every default and every allowed range.  Sources, strongest first: flags (`overrides`), environment
(`DRAGOMAN_LISTEN__GRPC_PORT=50052`), TOML file (`[listen]` / `grpc_port = 50052`), the defaults below.
"""

import os
import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.dataclasses import dataclass
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from model.bundle import named_bundle_dir
from model.manifest import MAX_BEAM_SIZE

ENV_PREFIX = "DRAGOMAN_"

Port = Annotated[int, Ge(0), Le(65_535)]
Host = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Ge(1), Le(1_000_000_000)]
Seconds = Annotated[float, Gt(0), Le(86_400)]
Delay = Annotated[float, Ge(0), Le(3_600)]

NEVER = "never"  # what None is called in every source; TOML and flags have no word for it


_NEVER_IS_NONE = BeforeValidator(lambda value: None if value == NEVER else value)
SecondsOrNever = Seconds | Annotated[None, _NEVER_IS_NONE]

_OF_A_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._~-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?|null")

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


def _bundle_directory(value: object) -> object:
    """Return the path that a name or a path means, None if it is empty; a Path stays as it is."""
    if isinstance(value, str):
        return named_bundle_dir(value) if value else None
    return value


BundlePath = Annotated[Path | None, BeforeValidator(_bundle_directory)]
# An empty value, as a variable that is set to nothing has it, is no path: it would be the working directory.
OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: None if value == "" else value)]
OptionalText = Annotated[str | None, BeforeValidator(lambda value: None if value == "" else value)]


def _origins(value: str) -> str:
    """Return the origins as browsers send them, in lower case without a slash at the end, or raise ValueError."""
    origins = [origin.strip().lower().removesuffix("/") for origin in value.split(",") if origin.strip()]
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            known = "scheme and host, and the port where it is not the usual one, like https://a.example"
            raise ValueError(f"{origin!r} is no origin: write {known}, without a path, or *")
    return ", ".join(origins)


Origins = Annotated[str, AfterValidator(_origins)]


class ConfigError(ValueError):
    """The settings are wrong; `str(error)` is one line: which setting, its value, what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class ListenConfig:
    """Where the server listens and how connections are kept."""

    grpc_host: Host = "127.0.0.1"  # address of the gRPC port; 0.0.0.0: all addresses of the machine
    grpc_port: Port = 50_051  # 0: any free port
    http_host: Host = "127.0.0.1"  # address of the HTTP port
    http_port: Port = 8_080  # 0: any free port
    http: bool = True  # whether the server has an HTTP port
    console: bool | None = None  # the page at /; None: only where http_host is loopback
    metrics_host: Host = "127.0.0.1"  # address of the metrics port
    metrics_port: Port | None = None  # serves /metrics instead of the HTTP port
    admin_host: Host = "127.0.0.1"  # address of the admin port
    admin_port: Port | None = None  # None: no admin port; 0: any free port
    # Number of frontend processes; None: one for each 8 CPUs, 1 to 4; with engine.device cuda for each 3, 1 to 8.
    edges: Annotated[int, Ge(1), Le(64)] | None = None
    reflection: bool = True  # gRPC reflection, for grpcurl
    keepalive_time_s: Seconds = 30.0  # a silent peer is pinged after this time
    keepalive_timeout_s: Seconds = 10.0  # a peer that does not answer a ping is dropped
    max_connection_idle_s: Seconds = 1_800.0  # a connection without calls is closed
    max_connection_age_s: SecondsOrNever = None  # a connection ends gracefully after this time
    max_streams_per_connection: Annotated[int, Ge(1), Le(100_000)] = 1_024  # calls of one connection at a time
    max_metadata_bytes: Annotated[int, Ge(1_024), Le(1 << 20)] = 16_384  # size of the headers of one call
    max_http_connections: Annotated[int, Ge(1), Le(4_096)] = 256  # at a time, on each HTTP port of each frontend
    # Origins that may call from a browser, like "https://a.example, https://b.example", or "*".
    cors_origins: Origins = ""


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class LimitsConfig:
    """What one request, and all of them together, may ask for."""

    max_texts: Annotated[int, Ge(1), Le(100_000)] = 256  # texts per request
    max_characters: Count = 10_000  # characters per text
    # Largest beam of a request, and of a model's default.
    max_beam_size: Annotated[int, Ge(1), Le(MAX_BEAM_SIZE)] = 16
    # A client below its equal share may use up to twice this limit, and twice max_queued_tokens.
    max_concurrent_requests: Count = 1_024  # Translate calls in flight
    max_queued_tokens: Count = 262_144  # source tokens of all texts that are not answered yet
    max_message_bytes: Annotated[int, Ge(1_024), Le(1 << 30)] = 4 << 20  # one gRPC message or HTTP body
    max_queue_seconds: Seconds = 30.0  # a request is refused if more work waits before it
    # Size of a file over HTTP; each frontend accepts four of that size at a time.
    max_document_bytes: Annotated[int, Ge(1_024), Le(1 << 30)] = 32 << 20
    max_document_seconds: Seconds = 3_600.0  # longest translation of a file
    max_request_seconds: Seconds = 60.0  # longest call, and the deadline of calls that have none
    max_stream_seconds: Seconds = 21_600.0  # longest stream
    max_streams: Annotated[int, Ge(1), Le(100_000)] = 64  # streams in flight, shared like requests
    # Health watches and reflection calls in flight, for each frontend; shared like requests.
    max_watches: Annotated[int, Ge(1), Le(100_000)] = 4_096
    max_stream_texts: Annotated[int, Ge(1), Le(100_000)] = 256  # texts of a stream that are not answered yet
    # Size of the translation cache of all models together; 0: no cache.
    translation_cache_mb: Annotated[int, Ge(0), Le(65_536)] = 16
    batch_aging_s: Seconds = 10.0  # batch work that has waited this long gets a quarter of the capacity
    # With this much queued work, beams are halved for callers that allow it; with twice as much, once more.
    brownout_seconds: SecondsOrNever = None
    retry_after_s: Delay = 1.0  # shortest wait that a refused caller is told


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class EngineConfig:
    """Which models run, and on how much of the machine."""

    # Directory or included name (`en-de`) of the one model that serves; None: all included ones.
    bundle: BundlePath = None
    device: Literal["auto", "cpu", "cuda"] = "cpu"  # auto: a GPU if it works, else the CPU
    # On a CPU.  auto: the native engine in C++ where it is built and knows the model, else ONNX Runtime.
    runtime: Literal["auto", "native", "onnxruntime"] = "auto"
    cuda_graphs: bool = True  # on a GPU: record decoder steps and replay them
    precision: Literal["int8", "fp32", "fp16"] | None = None  # None: the best of the bundle; fp16: GPU
    # None: one for each allowed CPU up to 64 (ONNX Runtime: 16); one on a GPU.
    num_engines: Annotated[int, Ge(1), Le(64)] | None = None  # processes of each model
    # Of each engine; None: 1, in ONNX Runtime allowed CPUs / num_engines.
    threads: Annotated[int, Ge(1), Le(256)] | None = None
    # Native engines of a model share its weights: a file in memory, which counts as the server's.
    shared_weights: bool = True
    # Hypotheses that an engine decodes at a time; None: its default.
    max_rows: Annotated[int, Ge(1), Le(65_536)] | None = None
    max_source_tokens: Count | None = None  # source tokens that an engine holds at a time; None: its default
    runner_factory: OptionalText = None  # "module:function" that makes the runner; None: ONNX Runtime (tests set it)


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class ModelsConfig:
    """A repository of models, instead of one bundle or the included ones."""

    # Has bundles at NAME/VERSION/; the highest version of each serves; None: engine.bundle or the included models.
    directory: OptionalPath = None
    watch: bool = False  # whether the server looks for changes by itself; else `dragoman reload` makes it look
    watch_period_s: Seconds = 5.0  # time between two looks
    self_test: bool = True  # a bundle must translate its golden sentences first
    # Memory of the whole server (MB of 2**20 bytes); calls load and unload models; None: the start loads all models.
    max_memory_mb: Count | None = None
    idle_s: SecondsOrNever = 600.0  # with max_memory_mb, a model without calls for this time is unloaded
    # Directory of glossaries that requests may name: NAME.tsv, lines with source, tab, target.
    glossaries: OptionalPath = None
    # Directory for glossaries that callers upload (DeepL's protocol); None: callers cannot upload any.
    uploaded_glossaries: OptionalPath = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class SecurityConfig:
    """Who may call, and how the wire is protected."""

    tls_certificate: OptionalPath = None  # PEM chain; with tls_key: TLS on the gRPC ports
    tls_key: OptionalPath = None  # PEM
    tls_client_ca: OptionalPath = None  # PEM; clients need a certificate signed by it
    reload_s: Seconds = 10.0  # time between two looks for changed certificates and keys
    api_keys: OptionalPath = None  # file of `dragoman keys`; None: everybody may call
    identity_header: OptionalText = None  # header in which a trusted proxy names its client
    # Addresses of proxies, like "10.0.0.0/8, ::1", whose identity_header and X-Forwarded-Proto count.
    trusted_proxies: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class LifecycleConfig:
    """How the server starts and stops."""

    start_timeout_s: Seconds = 60.0  # time for the engines to become ready
    engine_silence_s: Seconds = 10.0  # an engine or frontend that is silent for this time is replaced
    # /healthz fails after this long without an engine of some model.
    unready_exit_s: SecondsOrNever = 60.0
    drain_delay_s: Delay = 0.0  # after SIGTERM: time in which the server reports not ready and still accepts calls
    grace_s: Delay = 30.0  # after that: time for accepted calls to finish
    ports_file: OptionalPath = None  # written when serving: process id and ports, as JSON


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class TelemetryConfig:
    """What the server says about itself; never texts."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"  # lowest level that is written
    log_format: Literal["auto", "console", "json"] = "auto"  # auto: console on a terminal, JSON otherwise
    slow_request_s: SecondsOrNever = 5.0  # slower calls are logged with their phases
    otlp_endpoint: OptionalText = None  # address for traces over gRPC; needs the extra `otel`


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class ServerConfig:
    """Everything the server can be told."""

    listen: ListenConfig = field(default_factory=ListenConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    models: ModelsConfig = field(default_factory=ModelsConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    lifecycle: LifecycleConfig = field(default_factory=LifecycleConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)


_GROUPS: dict[str, type[Any]] = get_type_hints(ServerConfig)


class _EnvironmentBase(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_nested_delimiter="__")


# Names the groups for `EnvSettingsSource`, which finds their variables.
_Environment = create_model(
    "_Environment", __base__=_EnvironmentBase, **{name: (kind, ...) for name, kind in _GROUPS.items()}
)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where settings come from."""

    values: dict[str, Any]  # by group, then by name
    name_of: Callable[[str, str], str]  # group and name of a setting that it has -> what messages call the source


def load_config(file: Path | None = None, overrides: Mapping[str, object] | None = None) -> ServerConfig:
    """Return the settings from all sources; raises ConfigError for a file, name or value that is not accepted.

    Args:
        file: TOML, one table per group; None for none.
        overrides: strongest, by dotted name: `{"listen.grpc_port": 0}`; None as value means "not given".
    """
    sources = _read_sources(file, overrides)
    groups = {group for source in sources for group in source.values}
    for group in groups - set(_GROUPS):
        where = next(source.name_of(group, "") for source in sources if group in source.values)
        raise ConfigError(_unknown(group, group, where, _GROUPS))
    values: dict[str, Any] = {
        group: dict(ChainMap(*(source.values.get(group, {}) for source in sources))) for group in groups
    }
    try:
        config = ServerConfig(**values)
    except ValidationError as error:
        raise ConfigError(_explain(error, sources)) from error
    if config.engine.bundle is not None and config.models.directory is not None:
        both = " and ".join(
            f"{group}.{name} ({_source_of(group, name, sources)})"
            for group, name in (("engine", "bundle"), ("models", "directory"))
        )
        raise ConfigError(f"{both} are set: a server has one of them; set the other one to nothing")
    return config


def setting_sources(file: Path | None = None, overrides: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return where each setting comes from: "flag", "environment NAME", "file NAME" or "default".

    The arguments are those that `load_config` takes without an error.
    """
    sources = _read_sources(file, overrides)
    return {
        f"{group}.{item.name}": _source_of(group, item.name, sources)
        for group, kind in _GROUPS.items()
        for item in fields(kind)
    }


def _read_sources(file: Path | None, overrides: Mapping[str, object] | None) -> list[_Source]:
    """Return all sources, the strongest first."""
    flags: dict[str, Any] = {}
    for dotted, value in (overrides or {}).items():
        group, _, name = dotted.partition(".")
        if value is not None:
            flags.setdefault(group, {})[name] = value
    sources = [_Source(flags, lambda *_: "flag"), _Source(_read_environment(), _variable)]
    if file is not None:
        sources.append(_Source(_read_toml(file), lambda *_: f"file {file}"))
    for source in sources:
        for group in _GROUPS:
            given = source.values.get(group, {})
            if not isinstance(given, dict):
                where = source.name_of(group, "")
                raise ConfigError(f"{group} is {given!r} ({where}): it is a group of settings, [{group}] in TOML")
    return sources


def _source_of(group: str, name: str, sources: Iterable[_Source]) -> str:
    found = (source.name_of(group, name) for source in sources if name in source.values.get(group, {}))
    return next(found, "default")


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"configuration file {file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # bad TOML or bad UTF-8
        raise ConfigError(f"configuration file {file} is not valid TOML: {error}") from error


def _read_environment() -> dict[str, Any]:
    """Return the settings of the environment; refuse what is meant as a setting and would not be read as one.

    The prefix alone says nothing: clients have variables of their own (DRAGOMAN_API_KEY), and Kubernetes sets some for
    each Service, like DRAGOMAN_ENGINE_SERVICE_HOST for one called dragoman-engine.
    """
    for variable, value in os.environ.items():
        name = variable.upper()
        is_of_a_service = _OF_A_SERVICE.search(name) or (name.endswith("_PORT") and "://" in value)
        if not name.startswith(ENV_PREFIX) or is_of_a_service:
            continue
        group, delimiter, _ = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if (delimiter and group not in _GROUPS) or group.startswith(tuple(f"{known}_" for known in _GROUPS)):
            known = [
                f"{ENV_PREFIX}{group}__{item.name}".upper() for group in _GROUPS for item in fields(_GROUPS[group])
            ]
            (near,) = get_close_matches(name, known, n=1, cutoff=0)
            raise ConfigError(f"environment {variable} is not a setting: did you mean {near}?")
    try:
        return EnvSettingsSource(_Environment)()
    except SettingsError as error:
        raise ConfigError(f"environment: {error}; write {ENV_PREFIX}GROUP__NAME=VALUE") from error


def _variable(group: str, name: str) -> str:
    """Name the variable that gave the setting as it is written: in any case, and that of a group in JSON."""
    setting, whole = f"{ENV_PREFIX}{group}__{name}".upper(), f"{ENV_PREFIX}{group}".upper()
    written = {variable.upper(): variable for variable in os.environ}
    return f"environment {written.get(setting) or written.get(whole) or setting}"


def _explain(error: ValidationError, sources: Iterable[_Source]) -> str:
    """Say in one line what is wrong first."""
    first = error.errors(include_url=False)[0]
    group, name = str(first["loc"][0]), str(first["loc"][1])
    if first["type"] == "unexpected_keyword_argument":
        known = [item.name for item in fields(_GROUPS[group])]
        return _unknown(f"{group}.{name}", name, _source_of(group, name, sources), known)
    why = first["msg"].removeprefix("Value error, ")
    if bounds := allowed_bounds(group, name):
        why = f"allowed is {' and '.join(bounds)}{f', or {NEVER}' if may_be_never(group, name) else ''}"
    return f"{group}.{name} is {first['input']!r} ({_source_of(group, name, sources)}): {why}"


def _unknown(setting: str, name: str, where: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"{setting} is not a setting ({where}): {hint}"


def may_be_never(group: str, name: str) -> bool:
    """Return whether the setting takes the word for None."""
    return _NEVER_IS_NONE in _constraints(get_type_hints(_GROUPS[group], include_extras=True)[name])


def allowed_bounds(group: str, name: str) -> list[str]:
    """Return the range of a setting in words, like `["at least 1", "at most 64"]`; empty where it has none."""
    bounds = []
    for constraint in _constraints(get_type_hints(_GROUPS[group], include_extras=True)[name]):
        match constraint:
            case Ge(ge=bound):
                bounds.append(f"at least {bound:,}")
            case Gt(gt=bound):
                bounds.append(f"more than {bound:,}")
            case Le(le=bound):
                bounds.append(f"at most {bound:,}")
    return bounds


def _constraints(hint: object) -> list[object]:
    """Return the constraints of `Annotated[T, ...]`, also inside `... | None`."""
    own = list(getattr(hint, "__metadata__", ()))
    return own + [item for part in get_args(hint) if hasattr(part, "__metadata__") for item in _constraints(part)]
