"""The echo runner on a machine without memory: sources of 12 tokens raise MemoryError in the encoder."""

from collections.abc import Sequence

from service.engine.cpu.cache import CpuEncoded
from service.engine.spec import EngineSpec
from tests.fakes.echo_runner import EchoRunner

LENGTH = 12


class ShortOfMemory(EchoRunner):
    """An `EchoRunner` that cannot encode some texts."""

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        """As the echo runner's, or MemoryError."""
        if any(len(source) == LENGTH for source in sources):
            raise MemoryError
        return super().encode(sources)


def create(spec: EngineSpec) -> ShortOfMemory:
    """What `EngineSpec.runner_factory` names."""
    return ShortOfMemory(0.0, 0)
