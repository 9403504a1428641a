"""Who goes next: work that waits, in an order that is fair between clients.

Interactive work goes before batch work; batch work that has waited long enough has a share beside the interactive.
Within a class, deficit round robin on cost: each client has a flow, first come first served, and each turn of a flow is
worth the same cost times the client's weight.  A flow that was away goes before those that are always there, as in
fq_codel (RFC 8290), so that who asks seldom does not wait for who asks always.

Pure and synchronous; is told the time; knows neither engines nor seconds of work.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Generic, TypeVar

from service.queue.callers import Caller, Identity, Priority

MIN_WEIGHT = 0.01  # a smaller weight counts as this one: a turn of it is worth too little to be looked for
_QUANTUM_MEMORY = 64  # pushes over which the worth of a turn follows their costs
_MAX_FRESH = 8  # in a row, while others wait: ever new clients must not hold up those that were served before
_SAMPLE = 128  # flows that are looked at to tell what goes ahead: a refusal must stay cheap
_MAX_PROMOTED = 16  # aged entries moved at a time: each is moved once, and the event loop waits for it
# What aged batch work gets while interactive work waits, however many clients either has.  With as much as a client's
# share, one night's corpus was half of the server, and interactive calls that asked for 60 % of it waited for seconds.
AGED_SHARE = 0.25

Item = TypeVar("Item")
_FlowKey = tuple[Identity, Priority]  # client, the class that it asked for


@dataclass(slots=True, eq=False)
class Entry(Generic[Item]):
    """One piece of work in the queue, or no longer there."""

    item: Item
    cost: float
    caller: Caller
    priority: Priority  # as asked for
    arrived_at: float
    number: int  # of its arrival
    flow: "_Flow[Item] | None" = None  # None: it has left


@dataclass(slots=True, eq=False)
class _Flow(Generic[Item]):
    """What one client has waiting in one class."""

    key: _FlowKey
    weight: float
    turns: "_Turns[Item]"
    deficit: float  # cost that it may still take in this turn; below zero: a debt
    # By number.  A plain dict looks for its first entry in all places that were ever taken before it (bench_growth).
    entries: OrderedDict[int, Entry[Item]] = field(default_factory=OrderedDict)
    cost: float = 0.0
    was_served: bool = False


class FairQueue(Generic[Item]):
    """Work that waits."""

    def __init__(self, *, aging_s: float) -> None:
        """An empty queue.

        Args:
            aging_s: batch work that has waited this long gets `AGED_SHARE` of what is served, or more if nobody else
                wants it.
        """
        self._aging_s = aging_s
        self._interactive, self._aged, self._fresh_batch = _Turns[Item](), _Turns[Item](), _Turns[Item]()
        self._turns = (self._interactive, self._aged, self._fresh_batch)  # in the order in which they go
        self._aged_credit = 0.0  # cost that aged work may take before the interactive; below zero: a debt
        self._batch: OrderedDict[int, Entry[Item]] = OrderedDict()  # in order of arrival
        self._numbers = count()
        self.typical_cost = 0.0  # a moving average over what was pushed

    def __len__(self) -> int:
        return sum(turns.num_entries for turns in self._turns)

    def __iter__(self) -> Iterator[Item]:
        """Everything that waits, in no particular order."""
        for turns in self._turns:
            for flow in turns.flows():
                for entry in flow.entries.values():
                    yield entry.item

    @property
    def cost(self) -> float:
        """Of everything that waits."""
        return sum(turns.cost for turns in self._turns)

    def push(self, item: Item, *, caller: Caller, priority: Priority, cost: float, now: float) -> Entry[Item]:
        """Put an item behind all others of its client and class; the entry is its name in the queue."""
        self.typical_cost += (cost - self.typical_cost) / _QUANTUM_MEMORY if self.typical_cost else cost
        entry = Entry(item, cost, caller, priority, now, next(self._numbers))
        self._turns_of(priority).add(entry, quantum=self.typical_cost)
        if priority is Priority.BATCH:
            self._batch[entry.number] = entry
        return entry

    def remove(self, entry: Entry[Item]) -> bool:
        """Take an entry out, wherever it stands; False if it has left."""
        if entry.flow is None:
            return False
        entry.flow.turns.remove(entry)
        self._batch.pop(entry.number, None)
        return True

    def peek(self, now: float) -> Entry[Item] | None:
        """Whose turn it is; it stays."""
        self._promote(now)
        turns = self._first_turns()
        return turns.first(self.typical_cost) if turns else None

    def serve(self, entry: Entry[Item]) -> None:
        """Take out the entry that `peek` gave, at its client's expense."""
        flow = entry.flow
        assert flow is not None, "the entry has left the queue"
        self._settle_shares(flow.turns, entry.cost)
        flow.turns.charge(flow, entry.cost)
        self.remove(entry)

    def cost_ahead(self, caller: Caller, priority: Priority, cost: float) -> float:
        """Cost of what waits now and goes before the end of `cost` more of this client's work."""
        turns = self._turns_of(priority)
        ahead = turns.cost_ahead((caller.identity, priority), _weight(caller), cost, self.typical_cost)
        if priority is Priority.INTERACTIVE:
            return ahead + min(self._aged.cost, (ahead + cost) * AGED_SHARE / (1 - AGED_SHARE))
        return ahead + self._interactive.cost + self._aged.cost

    def _turns_of(self, priority: Priority) -> "_Turns[Item]":
        """Where work of this class begins."""
        return self._interactive if priority is Priority.INTERACTIVE else self._fresh_batch

    def _first_turns(self) -> "_Turns[Item] | None":
        """Those of the class that is served next, None if nothing waits."""
        if self._aged_credit > 0.0 and self._aged.num_entries:
            return self._aged
        return next((turns for turns in self._turns if turns.num_entries), None)

    def _settle_shares(self, turns: "_Turns[Item]", cost: float) -> None:
        """Count what is served towards the shares of interactive and aged work, as long as both wait."""
        if not (self._interactive.num_entries and self._aged.num_entries):
            self._aged_credit = 0.0
        elif turns is self._aged:
            self._aged_credit -= cost
        else:
            self._aged_credit += cost * AGED_SHARE / (1 - AGED_SHARE)

    def _promote(self, now: float) -> None:
        """Give batch work that has waited long enough its share."""
        for _ in range(_MAX_PROMOTED):
            entry = next(iter(self._batch.values()), None)
            if entry is None or now - entry.arrived_at < self._aging_s:
                return
            self.remove(entry)
            self._aged.add(entry, quantum=self.typical_cost)


class _Turns(Generic[Item]):
    """The flows of one class: those that have just come, then the others, each in turn."""

    def __init__(self) -> None:
        self.fresh: OrderedDict[_FlowKey, _Flow[Item]] = OrderedDict()
        self.old: OrderedDict[_FlowKey, _Flow[Item]] = OrderedDict()
        self.cost = 0.0
        self.num_entries = 0
        self._num_fresh = 0  # served in a row

    def flows(self) -> Iterator[_Flow[Item]]:
        yield from self.fresh.values()
        yield from self.old.values()

    def add(self, entry: Entry[Item], *, quantum: float) -> None:
        key = (entry.caller.identity, entry.priority)
        flow = self.fresh.get(key) or self.old.get(key)
        if flow is None:
            weight = _weight(entry.caller)
            flow = self.fresh[key] = _Flow(key, weight, self, deficit=quantum * weight)
        flow.entries[entry.number] = entry
        flow.cost += entry.cost
        self.cost += entry.cost
        self.num_entries += 1
        entry.flow = flow

    def remove(self, entry: Entry[Item]) -> None:
        flow = entry.flow
        assert flow is not None, "the entry has left the queue"
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

    def charge(self, flow: _Flow[Item], cost: float) -> None:
        self._num_fresh = self._num_fresh + 1 if flow.key in self.fresh else 0
        flow.deficit -= cost
        flow.was_served = True

    def first(self, quantum: float) -> Entry[Item] | None:
        """The entry whose turn it is; flows whose turn is over go to the end."""
        while self.num_entries:
            is_fresh = self.fresh and (self._num_fresh < _MAX_FRESH or not self.old)
            flows = self.fresh if is_fresh else self.old
            flow = next(iter(flows.values()))
            if flow.deficit <= 0:
                self._end_turn(flow, flows, quantum)
            elif flow.entries:
                return next(iter(flow.entries.values()))
            elif flows is self.fresh:  # it stays for a round: who sends one text at a time is not new each time
                self._to_end(flow, flows)
            else:
                del flows[flow.key]
        return None

    def cost_ahead(self, key: _FlowKey, weight: float, cost: float, quantum: float) -> float:
        own = self.fresh.get(key) or self.old.get(key)
        if own is None and cost <= quantum * weight:  # it will be fresh
            return _sum_of(self.fresh.values(), lambda flow: max(0.0, flow.deficit) + quantum)
        before = own.cost if own else 0.0
        turns = (before + cost) / weight
        both = _sum_of(self.fresh.values(), lambda flow: turns * flow.weight)
        both += _sum_of(self.old.values(), lambda flow: turns * flow.weight)
        return before + both - (min(own.cost, turns * own.weight) if own else 0.0)

    def _end_turn(self, flow: _Flow[Item], flows: OrderedDict[_FlowKey, _Flow[Item]], quantum: float) -> None:
        if len(self.fresh) + len(self.old) == 1:
            flow.deficit = 0.0  # nobody else waits: no debt
        flow.deficit += quantum * flow.weight
        self._to_end(flow, flows)

    def _to_end(self, flow: _Flow[Item], flows: OrderedDict[_FlowKey, _Flow[Item]]) -> None:
        del flows[flow.key]
        self.old[flow.key] = flow


def _sum_of(flows: "Collection[_Flow[Item]]", most: "Callable[[_Flow[Item]], float]") -> float:
    """Cost of these flows, of each up to `most`; of very many, as some of them have it on average."""
    sample = islice(flows, _SAMPLE)
    found = sum(min(flow.cost, most(flow)) for flow in sample)
    return found * max(1.0, len(flows) / _SAMPLE)


def _weight(caller: Caller) -> float:
    return max(MIN_WEIGHT, caller.weight)
