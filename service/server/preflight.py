"""What is wrong with the settings, as far as files tell; for `--check-config`.

Starts no engine and binds no port.  Opens, of each model, the bundles that a start would open.
"""

from collections.abc import Callable, Iterator

from model.files import require_writable
from service.api.auth import authenticator
from service.api.calls import load_traces
from service.api.grpc.server import server_tls
from service.config import ServerConfig
from service.models.check import BundleChecker, check_until_good
from service.models.repository import bundle_source
from service.translate.glossaries import Glossaries


def check(config: ServerConfig) -> list[str]:
    """Return what is wrong, one line each; nothing when the server could start and serve every model."""
    checks: tuple[Callable[[], object], ...] = (
        lambda: server_tls(config.security),
        lambda: authenticator(config.security),
        lambda: load_traces(config.telemetry),
        lambda: Glossaries(config.models.glossaries, period_s=config.models.watch_period_s),
    )
    problems = list(_bad_models(config))
    for make in checks:  # as the server makes these parts
        try:
            make()
        except ValueError as error:  # ConfigError
            problems.append(str(error))
    ports_file = config.lifecycle.ports_file
    if ports_file is not None:
        try:
            require_writable(ports_file)
        except OSError as error:
            problems.append(f"lifecycle.ports_file {ports_file} cannot be written: {error.strerror}")
    return [" ".join(problem.split()) for problem in problems]


def _bad_models(config: ServerConfig) -> Iterator[str]:
    """Yield a problem for each name without a version that can serve: that of the newest version."""
    try:
        checker = BundleChecker(config)
        candidates = bundle_source(config)()
    except ValueError as error:
        yield str(error)
        return
    for found in candidates.values():
        checked = check_until_good(checker, found)
        newest = checked[found[0]]
        if isinstance(newest, Exception) and all(isinstance(one, Exception) for one in checked.values()):
            yield str(newest)
