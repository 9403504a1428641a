"""Edge and core: in one process, or several edges that share the port and give their work to the one core."""

from service.config import ListenConfig
from service.threads import available_threads

_CPUS_PER_EDGE, _MAX_DEFAULT_EDGES = 8, 4


def num_edges(config: ListenConfig) -> int:
    """Return how many processes answer calls: one as long as it can keep the engines of this machine busy."""
    return config.edges or max(1, min(_MAX_DEFAULT_EDGES, available_threads() // _CPUS_PER_EDGE))
