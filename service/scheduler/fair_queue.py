"""The work that waits, in an order that is fair between callers.

Interactive work goes before batch work.  Batch work that has waited long enough gets a share beside interactive work.
Within a class the order is deficit round robin on cost: each caller has a flow, first come first served, and each turn
of a flow is worth the same cost times the caller's weight.  A flow that was empty goes before flows that are always
there, as in fq_codel (RFC 8290), so that callers that ask seldom do not wait for callers that always ask.

Pure and synchronous; is told the time; knows neither engines nor seconds of work.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Generic, TypeVar

from service.call import Caller, Identity
from service.records import Priority

MIN_WEIGHT = 0.01  # a smaller weight counts as this one: a turn of it is worth too little to be looked for
_QUANTUM_MEMORY = 64  # pushes over which the worth of a turn follows their costs
_MAX_FRESH = 8  # in a row, while others wait: ever new callers must not hold up those that were served before
_SERVICE_MEMORY = 32  # services of a flow over which its share of all service follows
_SAMPLE = 128  # flows that are looked at to tell what goes ahead: a refusal must stay cheap
_MAX_PROMOTED = 16  # aged entries moved at a time: each is moved once, and the event loop waits for it
# What aged batch work gets while interactive work waits, however many callers either has.  With as much as a caller's
# share, one night's corpus was half of the server, and interactive calls that asked for 60 % of it waited for seconds.
AGED_SHARE = 0.25

Item = TypeVar("Item")
AnyEntry = TypeVar("AnyEntry", bound="Entry[Any]")
_FlowKey = tuple[Identity, Priority]  # caller, the class that it asked for


@dataclass(slots=True, eq=False)
class Entry(Generic[Item]):
    """One piece of work: in the queue, before that, or no longer there."""

    item: Item
    caller: Caller
    priority: Priority  # as asked for
    arrived_at: float
    cost: float = 0.0
    number: int = -1  # of its arrival
    flow: "_Flow[Any] | None" = None  # None: it is not there


@dataclass(slots=True, eq=False)
class _Flow(Generic[AnyEntry]):
    """What one caller has waiting in one class; the word is that of deficit round robin."""

    key: _FlowKey
    weight: float
    owner: "_RoundRobin[AnyEntry]"
    deficit: float  # cost that it may still take in this turn; below zero: a debt
    # Cost that was served lately from this flow, and from all flows while this one waited.  Their ratio tells what will
    # be served beside this flow: more than what waits there now, if the other callers go on asking.
    own_service: float
    all_service: float
    served_before: float = 0.0  # cost served from all flows before this one began to wait for its next service
    # By number.  A plain dict looks for its first entry in all places that were ever taken before it (bench_growth).
    entries: OrderedDict[int, AnyEntry] = field(default_factory=OrderedDict)
    cost: float = 0.0
    was_served: bool = False


class FairQueue(Generic[AnyEntry]):
    """Work that waits."""

    def __init__(self, *, aging_s: float) -> None:
        """Create an empty queue.

        Args:
            aging_s: batch work that has waited this long gets `AGED_SHARE` of what is served, or more if nobody else
                wants it.
        """
        self._aging_s = aging_s
        self._interactive, self._aged, self._batch = (
            _RoundRobin[AnyEntry](),
            _RoundRobin[AnyEntry](),
            _RoundRobin[AnyEntry](),
        )
        self._classes = (self._interactive, self._aged, self._batch)  # in the order in which they are served
        self._aged_credit = 0.0  # cost that aged work may take before the interactive; below zero: a debt
        self._aging: OrderedDict[int, AnyEntry] = OrderedDict()  # batch work in order of arrival
        self._numbers = count()
        self._served = 0.0  # cost, in all
        self.typical_cost = 0.0  # a moving average over what has come

    def __len__(self) -> int:
        return self._interactive.num_entries + self._aged.num_entries + self._batch.num_entries

    def __iter__(self) -> Iterator[AnyEntry]:
        """Everything that waits, in no order."""
        flows = (flow for each in self._classes for flow in (*each.fresh.values(), *each.old.values()))
        return (entry for flow in flows for entry in flow.entries.values())

    @property
    def cost(self) -> float:
        """Cost of everything that waits."""
        return self._interactive.cost + self._aged.cost + self._batch.cost

    def push(self, entry: AnyEntry) -> None:
        """Put an entry, whose cost is known, behind all others of its caller and class."""
        cost, usual = entry.cost, self.typical_cost
        self.typical_cost += (cost - usual) / _QUANTUM_MEMORY if usual else cost
        entry.number = next(self._numbers)
        if entry.priority is Priority.BATCH:
            self._batch.add(entry, quantum=self.typical_cost, served=self._served)
            self._aging[entry.number] = entry
        else:
            self._interactive.add(entry, quantum=self.typical_cost, served=self._served)

    def remove(self, entry: AnyEntry) -> bool:
        """Take an entry out, wherever it stands; False if it has left."""
        if entry.flow is None:
            return False
        entry.flow.owner.remove(entry, entry.flow)
        self._aging.pop(entry.number, None)
        return True

    def peek(self, now: float, *, may_be_batch: bool = True) -> AnyEntry | None:
        """Return the entry whose turn it is and leave it where it is.

        Args:
            may_be_batch: whether there is room for batch work, too.
        """
        if self._aging:
            self._promote(now)
        if not may_be_batch:
            return self._interactive.first(self.typical_cost)
        if self._aged_credit > 0.0 and self._aged.num_entries:
            return self._aged.first(self.typical_cost)
        for flows in self._classes:
            if flows.num_entries:
                return flows.first(self.typical_cost)
        return None

    def serve(self, entry: AnyEntry) -> None:
        """Take out the entry that `peek` gave, at its caller's expense."""
        flow = entry.flow
        assert flow is not None, "the entry has left the queue"
        if not (self._interactive.num_entries and self._aged.num_entries):  # shares count only while both wait
            self._aged_credit = 0.0
        elif flow.owner is self._aged:
            self._aged_credit -= entry.cost
        else:
            self._aged_credit += entry.cost * AGED_SHARE / (1 - AGED_SHARE)
        flow.owner.num_fresh = flow.owner.num_fresh + 1 if flow.key in flow.owner.fresh else 0
        self._served += entry.cost
        kept = 1 - 1 / _SERVICE_MEMORY
        flow.own_service = kept * flow.own_service + entry.cost
        flow.all_service = kept * flow.all_service + self._served - flow.served_before
        flow.served_before = self._served
        flow.deficit -= entry.cost
        flow.was_served = True
        self.remove(entry)

    def cost_ahead(self, caller: Caller, priority: Priority, cost: float) -> float:
        """Cost that goes before the end of `cost` more of this caller's work.

        That is what waits now and, for interactive work, at least what goes before if the caller's share of the service
        stays what it was lately.
        """
        if not self:
            return 0.0
        flows = self._interactive if priority is Priority.INTERACTIVE else self._batch
        ahead = flows.cost_ahead(caller, priority, cost, self.typical_cost)
        if priority is Priority.INTERACTIVE:
            ahead += min(self._aged.cost, (ahead + cost) * AGED_SHARE / (1 - AGED_SHARE))
            return max(ahead, flows.ahead_at_its_share(caller, priority, cost))
        return ahead + self._interactive.cost + self._aged.cost

    def _promote(self, now: float) -> None:
        """Give batch work that has waited long enough its share."""
        for _ in range(_MAX_PROMOTED):
            entry = next(iter(self._aging.values()), None)
            if entry is None or now - entry.arrived_at < self._aging_s:
                return
            self.remove(entry)
            self._aged.add(entry, quantum=self.typical_cost, served=self._served)


class _RoundRobin(Generic[AnyEntry]):
    """The flows of one class: those that have just come, then the others, each in turn."""

    def __init__(self) -> None:
        self.fresh: OrderedDict[_FlowKey, _Flow[AnyEntry]] = OrderedDict()
        self.old: OrderedDict[_FlowKey, _Flow[AnyEntry]] = OrderedDict()
        self.cost = 0.0
        self.num_entries = 0
        self.num_fresh = 0  # served in a row

    def add(self, entry: AnyEntry, *, quantum: float, served: float) -> None:
        key = (entry.caller.identity, entry.priority)
        flow = self.fresh.get(key) or self.old.get(key)
        if flow is None:
            weight = max(MIN_WEIGHT, entry.caller.weight)
            alone = _SERVICE_MEMORY * quantum  # until it is known better, the flow is served alone
            flow = self.fresh[key] = _Flow(key, weight, self, quantum * weight, alone, alone)
        if not flow.entries:
            flow.served_before = served
        flow.entries[entry.number] = entry
        flow.cost += entry.cost
        self.cost += entry.cost
        self.num_entries += 1
        entry.flow = flow

    def remove(self, entry: AnyEntry, flow: _Flow[AnyEntry]) -> None:
        del flow.entries[entry.number]
        flow.cost -= entry.cost
        self.cost -= entry.cost
        self.num_entries -= 1
        entry.flow = None
        if self.num_entries == 0:  # nobody is there to be fair to; and sums of floats start again from zero
            self.fresh.clear()
            self.old.clear()
            self.cost = 0.0
        elif not flow.entries and not flow.was_served:  # it came and went: there is no debt to remember
            (self.fresh if flow.key in self.fresh else self.old).pop(flow.key, None)

    def first(self, quantum: float) -> AnyEntry | None:
        """Return the entry whose turn it is; flows whose turn is over go to the end."""
        while self.num_entries:
            is_fresh = self.fresh and (self.num_fresh < _MAX_FRESH or not self.old)
            flows = self.fresh if is_fresh else self.old
            key, flow = next(iter(flows.items()))
            if flow.deficit > 0 and flow.entries:
                return next(iter(flow.entries.values()))
            del flows[key]
            if flow.deficit <= 0:  # its turn is over; a flow that is alone keeps no debt
                flow.deficit = quantum * flow.weight + (flow.deficit if self.fresh or self.old else 0.0)
            elif flows is self.old:
                continue
            self.old[key] = flow  # an empty fresh one, too: who sends one text at a time is not new each time
        return None

    def cost_ahead(self, caller: Caller, priority: Priority, cost: float, quantum: float) -> float:
        key, weight = (caller.identity, priority), max(MIN_WEIGHT, caller.weight)
        own = self.fresh.get(key) or self.old.get(key)
        if own is None and cost <= quantum * weight:  # it will be fresh
            return _sum_of(self.fresh.values(), lambda flow: max(0.0, flow.deficit) + quantum)
        before = own.cost if own else 0.0
        turns = (before + cost) / weight
        both = _sum_of(self.fresh.values(), lambda flow: turns * flow.weight)
        both += _sum_of(self.old.values(), lambda flow: turns * flow.weight)
        return before + both - (min(own.cost, turns * own.weight) if own else 0.0)

    def ahead_at_its_share(self, caller: Caller, priority: Priority, cost: float) -> float:
        key = (caller.identity, priority)
        flow = self.fresh.get(key) or self.old.get(key)
        return (flow.cost + cost) * flow.all_service / flow.own_service - cost if flow else 0.0


def _sum_of(flows: "Collection[_Flow[AnyEntry]]", most: "Callable[[_Flow[AnyEntry]], float]") -> float:
    """Cost of these flows, of each up to `most`; of very many flows, an estimate from some of them."""
    found = sum(min(flow.cost, most(flow)) for flow in islice(flows, _SAMPLE))
    return found * max(1.0, len(flows) / _SAMPLE)
