"""What is wrong with the settings, as far as files tell: those that are missing, or are not what they should be.

For `--check-config`.  Starts no engine and binds no port; of each model opens the bundles that a start would open.
"""

from collections.abc import Callable, Iterator, Sequence

from service.config import LifecycleConfig, ServerConfig
from service.grpc.authentication import authenticator
from service.grpc.tls import server_tls
from service.registry.bundle_check import BundleChecker
from service.registry.repository import BundleCandidate, bundle_source
from service.server.diagnosis import require_trace_library


def check(config: ServerConfig) -> list[str]:
    """What is wrong, one line each; empty when the server could start and serve every model."""
    problems = [
        *_models(config),
        *_said_by(lambda: server_tls(config.security)),
        *_said_by(lambda: authenticator(config.security)),
        *_said_by(lambda: require_trace_library(config)),
        *_ports_file(config.lifecycle),
    ]
    return [" ".join(problem.split()) for problem in problems]


def _models(config: ServerConfig) -> Iterator[str]:
    """Each name of which no version can serve: by the newest one's fault, which is the first to mend."""
    try:
        checker = BundleChecker(config)
        candidates = bundle_source(config).scan()
    except ValueError as error:
        yield str(error)
        return
    for found in candidates.values():
        if errors := _errors_if_all_bad(checker, found):
            yield str(errors[0])


def _errors_if_all_bad(
    check_bundle: Callable[[BundleCandidate], object], found: Sequence[BundleCandidate]
) -> list[Exception]:
    """What is wrong with each; empty as soon as one is good, as that one would serve."""
    errors: list[Exception] = []
    for candidate in found:
        try:
            check_bundle(candidate)
        except (ValueError, OSError) as error:
            errors.append(error)
        else:
            return []
    return errors


def _said_by(make: Callable[[], object]) -> Iterator[str]:
    """What the part itself says when it is made as the server makes it."""
    try:
        make()
    except ValueError as error:  # ConfigError
        yield str(error)


def _ports_file(lifecycle: LifecycleConfig) -> Iterator[str]:
    file = lifecycle.ports_file
    if file is not None and not file.absolute().parent.is_dir():
        yield f"lifecycle.ports_file {file} is in a directory that does not exist"
