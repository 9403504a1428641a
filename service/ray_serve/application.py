"""The application for Ray Serve; deploy/ray/serve.yaml names `build`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict
from ray import serve

from service.ray_serve.replica import Replica

# Serve would let 5 calls into a replica, and the others wait where nobody refuses them.  Admission decides instead, by
# `limits.max_concurrent_requests` (1,024, and twice as much for fairness) and `limits.max_streams`.
MAX_ONGOING_CALLS = 4_096


class Arguments(BaseModel):
    """`args` of the application."""

    model_config = ConfigDict(extra="forbid")

    config: Path | None = None  # file of settings, at the same place on every node
    settings: dict[str, bool | int | float | str] = {}  # stronger than the file, by dotted name


Translator = serve.deployment(
    name="Translator",
    max_ongoing_requests=MAX_ONGOING_CALLS,
    health_check_period_s=5.0,  # three failures in a row: an engine that is replaced meanwhile costs no replica
    health_check_timeout_s=10.0,
    graceful_shutdown_timeout_s=70.0,  # `limits.max_request_seconds`, and some for the server's end
)(Replica)


def build(arguments: Arguments) -> serve.Application:
    """The application with these arguments."""
    return Translator.bind(arguments.config, arguments.settings)
