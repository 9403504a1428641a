"""What is wrong with the settings, as far as files tell: those that are missing, or are not what they should be.

For `--check-config`.  Starts no engine and binds no port; opens each bundle that would be tried first.
"""

from collections.abc import Callable, Iterator

from service.api.authentication import authenticator
from service.config import LifecycleConfig, ServerConfig
from service.front.model_hosting import BundleChecker, model_source
from service.front.tls import server_tls


def check(config: ServerConfig) -> list[str]:
    """What is wrong, one line each; empty when the server could start."""
    problems = [
        *_models(config),
        *_said_by(lambda: server_tls(config.security)),
        *_said_by(lambda: authenticator(config.security)),
        *_ports_file(config.lifecycle),
    ]
    return [" ".join(problem.split()) for problem in problems]


def _models(config: ServerConfig) -> Iterator[str]:
    """Of each name the version that would be tried first; one that is refused need not stop the others."""
    try:
        checker = BundleChecker(config)
        candidates = model_source(config).scan()
    except ValueError as error:
        yield str(error)
        return
    for found in candidates.values():
        try:
            checker(found[0])
        except (ValueError, OSError) as error:
            yield str(error)


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
