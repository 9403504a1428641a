"""The capacity card of the included English-German model on this machine: rates, throughput, latency, memory, start.

    python tests/bench/bench_capacity.py [--seconds 10] [--write docs/capacity.md]

Starts the real server with its default configuration and loads it with the library of `dragoman loadtest`, beam 4 and
1, with and without shortlist.  About 80 stages: 16 minutes on two cores.  Nothing else should run.
Prints the card and one JSON line; with `--write` the card goes to a file, and a row for it into the README.md beside.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

# Inside the guard: the processes that send calls, which are spawned, import this module again.
if __name__ == "__main__":
    from tests.bench.capacity.measure import main

    main()
