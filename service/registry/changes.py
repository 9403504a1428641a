"""What became of the versions in a model repository: loaded, retired, unchanged, or refused and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from service.errors import DragomanError, FailedPrecondition
from service.registry.repository import BundleCandidate


class Result(StrEnum):
    """What became of a version; the values are those of `admin.proto`."""

    LOADED = "loaded"
    RETIRED = "retired"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """One line of the answer to a reload."""

    name: str
    version: str
    result: Result
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A version that may not serve."""

    candidate: BundleCandidate
    error: Exception

    @property
    def is_foreseen(self) -> bool:
        """Whether the error says by itself what is wrong with the bundle."""
        return isinstance(self.error, (ValueError, DragomanError))

    @property
    def reason(self) -> str:
        """One line; of an error that nobody foresaw, its kind too."""
        text = " ".join(str(self.error).split())
        return text if self.is_foreseen else f"{type(self.error).__name__}: {text}"

    def forget_frames(self) -> None:
        """Let go of what the error still holds: the host that failed, with its tokenizer and all else."""
        error: BaseException | None = self.error
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__


def require_none_refused(changes: Iterable[ModelChange]) -> None:
    """For an operator who asked for a reload.

    Raises:
        FailedPrecondition: something was refused; names each with its reason.
    """
    refused = [f"{change.name} {change.version}: {change.reason}" for change in changes if change.result == "refused"]
    if refused:
        raise FailedPrecondition(f"{len(refused)} refused: {'; '.join(refused)}")
