"""Whether this process wants work, and whether it is beyond help: what /readyz and /healthz say.

Pure: is told the time and what there is.
"""


class Readiness:
    """Accepting: started, and not draining.  Alive: with an engine for every model, not too long ago."""

    def __init__(self, unready_exit_s: float | None = None) -> None:
        """Neither started nor draining.

        Args:
            unready_exit_s: not ready for longer than this, the process is not alive; None for never mind.
        """
        self.is_accepting = False
        self.is_draining = False
        self._unready_exit_s = unready_exit_s
        self._unready_since: float | None = None

    def drain(self) -> None:
        """Want no more work."""
        self.is_accepting = False
        self.is_draining = True

    def observe(self, now: float, *, is_ready: bool) -> None:
        """Take note of whether every model has an engine; called many times a second once the server has started."""
        if is_ready:
            self._unready_since = None
        elif self._unready_since is None:
            self._unready_since = now

    def is_alive(self, now: float) -> bool:
        """False when a restart is the only hope left; starting and draining take what they take."""
        since = self._unready_since
        if since is None or self._unready_exit_s is None or not self.is_accepting:
            return True
        return now - since <= self._unready_exit_s
