"""Whether the server wants work and can do it: what /readyz, /healthz, gRPC health and `dragoman status` say."""

from collections.abc import Callable
from typing import Literal


class Readiness:
    """Accepts work between the end of the start and the drain; is ready while there are engines and an edge, too."""

    def __init__(self, has_engines: Callable[[], bool], unready_exit_s: float | None = None) -> None:
        """The process is not alive once a model has had no engine for longer than `unready_exit_s`; None: never."""
        self.is_accepting = False
        self.is_draining = False
        self._has_engines = has_engines
        self._unready_exit_s = unready_exit_s
        self._without_engines_since: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether calls are accepted and every model has an engine."""
        return self.is_accepting and self._has_engines()

    @property
    def state(self) -> Literal["starting", "serving", "degraded", "draining"]:
        """The state of the server in one word."""
        if self.is_draining:
            return "draining"
        if not self.is_accepting:
            return "starting"
        return "serving" if self._has_engines() else "degraded"

    def drain(self) -> None:
        """Accept no more work."""
        self.is_accepting = False
        self.is_draining = True

    def observe(self, now: float) -> bool:
        """Note and return whether every model has an engine; called several times a second while serving."""
        has_engines = self._has_engines()
        if has_engines:
            self._without_engines_since = None
        elif self._without_engines_since is None:
            self._without_engines_since = now
        return has_engines

    def is_alive(self, now: float) -> bool:
        """Return False when only a restart can help; starting and draining take the time that they take."""
        since = self._without_engines_since
        if since is None or self._unready_exit_s is None or not self.is_accepting:
            return True
        return now - since <= self._unready_exit_s
