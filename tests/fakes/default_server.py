"""A server of the English-German model alone, else in the default configuration, on ports that are free."""

from pathlib import Path

from model.bundle import default_bundle_dir
from service.config import EngineConfig
from service.server.model_hosting import num_engines
from tests.fakes.server_process import ServerProcess, start


def start_default(directory: Path) -> ServerProcess:
    """One that serves; what other tests set for its engines is set back."""
    return start(
        default_bundle_dir(),
        directory,
        DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.process:create_runner",
        DRAGOMAN_ENGINE__NUM_ENGINES=str(num_engines(EngineConfig())),
    )
