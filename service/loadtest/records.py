"""What became of the calls, and what that says: percentiles, goodput, codes.

Latency counts from when a call was due, not from when it was sent: a call held up by a slow sender was late for its
user all the same (no coordinated omission).  Knows neither gRPC nor charts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
PERCENTILES = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
OK = "OK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """One entry a call in each array; times in seconds from the start of the stage."""

    due: Floats
    sent: Floats
    done: Floats
    codes: npt.NDArray[np.str_]
    texts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.due)

    @property
    def latency_s(self) -> Floats:
        """From due to done."""
        return self.done - self.due

    @property
    def is_ok(self) -> npt.NDArray[np.bool_]:
        """Which calls were answered."""
        return np.asarray(self.codes == OK)

    def after(self, due_s: float) -> "Records":
        """The calls that were due at this time or later."""
        return self.where(self.due >= due_s)

    def where(self, is_wanted: npt.NDArray[np.bool_]) -> "Records":
        """Some of the calls."""
        return Records(
            due=self.due[is_wanted],
            sent=self.sent[is_wanted],
            done=self.done[is_wanted],
            codes=self.codes[is_wanted],
            texts=self.texts[is_wanted],
        )


def joined(parts: Iterable[Records]) -> Records:
    """The calls of several workers, in the order in which they were due."""
    every = list(parts)
    due = np.concatenate([part.due for part in every])
    order = np.argsort(due, kind="stable")
    return Records(
        due=due[order],
        sent=np.concatenate([part.sent for part in every])[order],
        done=np.concatenate([part.done for part in every])[order],
        codes=np.concatenate([part.codes for part in every])[order],
        texts=np.concatenate([part.texts for part in every])[order],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one stage, warm-up left out."""

    offered_rate: float  # calls due a second
    ok_rate: float  # calls answered a second
    texts_rate: float  # texts of those
    goodput_rate: float  # calls answered within the target a second; ok_rate without a target
    calls: int
    codes: dict[str, int]
    latency_ms: dict[str, float]  # of answered calls, by percentile ("p50"); empty without any
    refusal_ms_p99: float | None  # how long a refusal took; None without any
    send_delay_ms_p99: float  # how late the load generator itself was
    duration_s: float


def summarize(records: Records, duration_s: float, *, target_s: float | None = None) -> Summary:
    """The figures of these calls.

    Args:
        duration_s: of the stretch in which they were due.
        target_s: a call that takes longer is no goodput.
    """
    answered = records.where(records.is_ok)
    refused = records.where(records.codes == "RESOURCE_EXHAUSTED")
    in_time = len(answered) if target_s is None else int((answered.latency_s <= target_s).sum())
    names, counts = np.unique(records.codes, return_counts=True)
    return Summary(
        offered_rate=len(records) / duration_s,
        ok_rate=len(answered) / duration_s,
        texts_rate=float(answered.texts.sum()) / duration_s,
        goodput_rate=in_time / duration_s,
        calls=len(records),
        codes={str(name): int(count) for name, count in zip(names, counts, strict=True)},
        latency_ms=percentiles_ms(answered.latency_s),
        refusal_ms_p99=_percentile_ms(refused.done - refused.sent, 99.0),
        send_delay_ms_p99=_percentile_ms(records.sent - records.due, 99.0) or 0.0,
        duration_s=duration_s,
    )


def done_texts_rate(records: Records, first_s: float, last_s: float) -> float:
    """Texts a second whose calls were answered between these times, whenever they were due.

    Under overload this is what the server can do; what was let in and still waits does not count.
    """
    is_inside = records.is_ok & (records.done >= first_s) & (records.done < last_s)
    return float(records.texts[is_inside].sum()) / (last_s - first_s)


def percentiles_ms(latency_s: Floats, wanted: Sequence[float] = PERCENTILES) -> dict[str, float]:
    """`{"p50": ...}` in milliseconds; empty without calls."""
    return {f"p{name:g}": float(np.percentile(latency_s, name) * 1e3) for name in wanted} if len(latency_s) else {}


def _percentile_ms(seconds: Floats, wanted: float) -> float | None:
    return percentiles_ms(seconds, [wanted]).get(f"p{wanted:g}")
