"""Whether a front process wants work."""

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """Started, and not draining: then it is accepting."""

    is_accepting: bool = False
    is_draining: bool = False

    def drain(self) -> None:
        """Want no more work."""
        self.is_accepting = False
        self.is_draining = True
