"""What files and ports say about the settings, before anything is started.

Values that no file or port has to do with are checked where they are read, in `service/config.py`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from model.files import kind_of, require_writable
from service.addresses import Address, check_free
from service.api.auth import authenticator
from service.api.grpc.server import server_tls
from service.config import ConfigError, ServerConfig
from service.models.repository import BundleChecker, bundle_source, check_until_good
from service.telemetry import load_traces
from service.translate.glossaries import Glossaries, UploadedGlossaries


def check_files(config: ServerConfig) -> Iterator[str]:
    """Yield what is wrong with the files that the settings name, except bundles; one line each."""
    models = config.models
    checks: tuple[Callable[[], object], ...] = (
        lambda: server_tls(config.security),
        lambda: authenticator(config.security),
        lambda: load_traces(config.telemetry),
        lambda: Glossaries(models.glossaries, period_s=models.watch_period_s),
        lambda: _check_uploads(models.uploaded_glossaries),
        lambda: _check_writable("lifecycle.ports_file", config.lifecycle.ports_file),
    )
    for make in checks:  # as the server makes these parts
        try:
            make()
        except ValueError as error:  # ConfigError
            yield " ".join(str(error).split())


def addresses(config: ServerConfig) -> dict[str, Address]:
    """Return where the server listens, by the settings of the ports."""
    listen = config.listen
    found = {"listen.grpc_port": Address(listen.grpc_host, listen.grpc_port)}
    if listen.http:
        found["listen.http_port"] = Address(listen.http_host, listen.http_port)
    if listen.metrics_port is not None:
        found["listen.metrics_port"] = Address(listen.metrics_host, listen.metrics_port)
    if listen.admin_port is not None:
        found["listen.admin_port"] = Address(listen.admin_host, listen.admin_port)
    return found


def check_ports(config: ServerConfig) -> None:
    """Raise ListenError for a port that cannot be listened on, and for one that is set twice."""
    check_free(addresses(config))


def check_bundles(config: ServerConfig) -> Iterator[str]:
    """Yield a problem for each name without a version that can serve: that of the newest version; one line each.

    The bundles are opened that a start would open.
    """
    try:
        checker = BundleChecker(config)
        candidates = bundle_source(config)()
    except ValueError as error:
        yield " ".join(str(error).split())
        return
    for found in candidates.values():
        checked = check_until_good(checker, found)
        newest = checked[found[0]]
        if isinstance(newest, Exception) and all(isinstance(one, Exception) for one in checked.values()):
            yield " ".join(str(newest).split())


def _check_uploads(directory: Path | None) -> None:
    UploadedGlossaries(directory)
    _check_writable("models.uploaded_glossaries", directory, file_in_it="a")


def _check_writable(setting: str, path: Path | None, *, file_in_it: str = "") -> None:
    """Raise ConfigError if the file, or this file in the directory, cannot be written."""
    if path is None:
        return
    try:
        if kind_of(path) == "a pipe":
            raise ConfigError(f"{setting} {path} is a pipe, and the start would wait for whoever reads it: name a file")
        require_writable(path / file_in_it)
    except OSError as error:
        raise ConfigError(f"{setting} {path} cannot be written: {error.strerror}") from error
