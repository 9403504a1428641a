"""Prints what a decoder step costs a GPU, counted on one that is not there, and modelled from that for an H100.

    make count-gpu

Settled: 64 sentences that stay.  Stream: 600 sentences, of which three join at each step while others leave.
Launched: each kernel by itself, as without `engine.cuda_graphs`.  Graphs: a step is one, and so is the encoder when
some join.  Modelled milliseconds are good to a factor of two; the host's share of them is measured here.
"""

import argparse
import time
from pathlib import Path

from bench.gpu_counted.counters import Measured, total
from bench.gpu_counted.loads import Cost, loop_of, made_up_sources, opened, settled, stream
from bench.gpu_counted.scripted import ScriptedRunner
from model.bundle import Bundle
from service.engine.cuda import cudart

BEAM, AT_ONCE, STREAM, ARRIVALS = 4, 64, 600, 3
ROWS = 320  # at most: what the stream needs, as memory is this machine's
HEADS = (
    *("model", "steps", "load", "plans", "bindings", "launches", "graphs", "kernels", "up", "down", "waits"),
    *("MB moved", "host ms", "modelled ms", "tokens/s"),
)
ROW = "{:8} {:9} {:8} {:>5} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6} {:>6} {:>9} {:>8} {:>11} {:>9}"


def main() -> None:
    """Print a line for each model, load and way to run steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", type=Path, nargs="+")
    given = parser.parse_args()
    print(ROW.format(*HEADS))
    for directory in given.bundles:
        bundle = Bundle.load(directory)
        for recorded in (False, True):
            measured, began, free = Measured(), time.process_time(), cudart.memory()[0] if recorded else 0
            runner = opened(ScriptedRunner, bundle, max_rows=ROWS, cuda_graphs=recorded)
            how = "recorded" if recorded else "launched"
            if recorded:
                number = total(measured.since(), "graph captured").number
                seconds, taken = time.process_time() - began, (free - cudart.memory()[0]) / 1e9
                print(f"{directory.name}: opened and {number} steps recorded in {seconds:.1f} s, {taken:.2f} GB in use")
            show(directory.name, how, "settled", settled(runner, AT_ONCE, BEAM))
            loop = loop_of(runner, ROWS)
            stream(loop, runner, made_up_sources(STREAM), BEAM, ARRIVALS)
            show(directory.name, how, "stream", stream(loop, runner, made_up_sources(STREAM), BEAM, ARRIVALS))
            del runner, loop


def show(model: str, how: str, load: str, cost: Cost) -> None:
    """Print what was counted: plans and new bindings in all, everything else a step."""
    graphs = total(cost.counts, "graph launch")
    tokens = cost.rows / BEAM / cost.modelled_ms * 1e3
    figures = (
        f"{cost.number('plan')}",
        f"{cost.new_bindings}",
        f"{cost.each('launch'):.1f}",
        f"{cost.each('graph launch'):.2f}",
        f"{graphs.amount / max(graphs.number, 1):.0f}",
        f"{cost.each('copy pinned to device'):.2f}",
        f"{cost.each('copy device to pinned'):.2f}",
        f"{cost.each('synchronise'):.2f}",
        f"{total(cost.counts, 'copy device to device').amount / cost.steps / 1e6:.2f}",
        f"{1e3 * cost.host_s / cost.steps:.2f}",
        f"{cost.modelled_ms:.2f}",
        f"{tokens:,.0f}",
    )
    print(ROW.format(model, how, load, *figures), flush=True)


if __name__ == "__main__":
    main()
