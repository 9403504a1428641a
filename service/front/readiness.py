"""Whether this process wants work, and whether it is beyond help: what /readyz and /healthz say.

Pure: is told the time and what there is.
"""


class Readiness:
    """Ready: started, not draining, an engine for every model.  Alive: an engine for some model, not too long ago."""

    def __init__(self, unready_exit_s: float | None) -> None:
        """Neither started nor lost.

        Args:
            unready_exit_s: without any engine for longer than this, the process is not alive; None for never mind.
        """
        self.is_accepting = False  # started, not draining
        self._unready_exit_s = unready_exit_s
        self._without_engine_since: float | None = None

    def observe(self, now: float, *, has_engine: bool) -> None:
        """Take note; called many times a second once the server has started."""
        if has_engine:
            self._without_engine_since = None
        elif self._without_engine_since is None:
            self._without_engine_since = now

    def is_alive(self, now: float) -> bool:
        """False when a restart is the only hope left; starting and draining take what they take."""
        since = self._without_engine_since
        if since is None or self._unready_exit_s is None or not self.is_accepting:
            return True
        return now - since <= self._unready_exit_s
