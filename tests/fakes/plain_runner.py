"""What the runners of tests share: one layer, one head, one number for each position, in this process' memory."""

from service.engine.cpu.cache import CpuCache
from service.engine.key_value_cache import CacheShape
from service.engine.runner import SHORTEST_SOURCE
from service.engine.scheduler import SchedulerConfig


class PlainRunner:
    """A `Runner` without `encode` and `decode_step`."""

    cache_shape = CacheShape(num_layers=1, num_heads=1, d_head=1)
    warm_up_source = SHORTEST_SOURCE

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        return wanted

    def new_state(self, beam_size: int, *, use_shortlist: bool) -> CpuCache:
        return CpuCache(self.cache_shape, beam_size)
