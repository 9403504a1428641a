"""Runs the fp16 graphs on a GPU: keys and values stay there, and only tokens, scores, lengths, masks and indices cross.

Decides nothing, as `runner.py`.  A step runs over a few more sentences than there are (`bucket`), so that few sizes of
batches come up; what it says of the others is thrown away.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.manifest import GPU_PRECISION
from service.engine.beam import Candidates, num_candidates
from service.engine.budgets import DeviceModel, fitting
from service.engine.cpu.kv_cache import CacheShape, KeyValueCache
from service.engine.cpu.runner import Floats, Ints, check_limits, layer_names, pad
from service.engine.cuda.device import Device
from service.engine.cuda.device_slots import DeviceEncoded, DeviceSlots, DeviceStorage, Place
from service.engine.cuda.libraries import free_memory, on_device, open_on_cuda, require_cuda
from service.engine.faults import explained
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from service.engine.vocabulary import LiveVocabulary

_MAX_BINDINGS = 64  # of one cache
_MAX_RECORDED = 128  # steps that are recorded; each keeps memory for as long as the session lives
_SOURCE_COLUMNS = 8  # sources are padded to multiples of it

Sessions = dict[str, ort.InferenceSession]  # by file name without suffix
GRAPHS = ("encoder", "decoder_step", "arrange", "extend")


class DeviceRunner:
    """The fp16 graphs of one bundle on one device (`Runner`)."""

    def __init__(
        self,
        bundle: Bundle,
        sessions: Sessions,
        device: Device,
        *,
        records: bool = False,
        storage: DeviceStorage | None = None,
    ) -> None:
        """Take sessions that are open.

        Args:
            sessions: those of `GRAPHS`.
            device: where they run.
            records: whether they can record steps and replay them (CUDA graphs).
            storage: where keys and values lie, if not as usual.
        """
        check_limits(bundle)
        config = bundle.manifest.config
        self.cache_shape = CacheShape(
            num_layers=config.num_decoder_layers, num_heads=config.num_heads, d_head=config.d_head
        )
        self._model = DeviceModel(
            shape=self.cache_shape,
            vocab_size=config.vocab_size,
            d_ff=config.d_ff,
            max_target_tokens=bundle.manifest.decoding.max_target_tokens,
        )
        self._encoder, self._decoder = sessions["encoder"], sessions["decoder_step"]
        self.storage = storage or DeviceStorage(device, sessions["arrange"], sessions["extend"])
        self._device = device
        self._vocab_size = config.vocab_size
        self._records = records
        self._num_recorded = 0
        self._bindings: WeakKeyDictionary[KeyValueCache, OrderedDict[_Key, _DeviceBinding]] = WeakKeyDictionary()

    def fitting(self, wanted: SchedulerConfig) -> SchedulerConfig:
        """The budgets as far as the device has memory for them."""
        return fitting(wanted, free_memory(), self._model)

    def new_cache(self, beam_size: int) -> KeyValueCache:
        """See `Runner.new_cache`."""
        return KeyValueCache(self.cache_shape, beam_size, self.storage)

    def live_vocabulary(self) -> LiveVocabulary | None:
        """None: a GPU's products are large enough for all tokens."""
        return None

    def encode(self, sources: Sequence[Sequence[int]]) -> DeviceEncoded:
        """See `Runner.encode`."""
        source_ids, lengths = pad(sources)
        source_ids = np.pad(source_ids, ((0, 0), (0, -source_ids.shape[1] % _SOURCE_COLUMNS)))
        binding = self._encoder.io_binding()
        with explained():
            binding.bind_cpu_input("source_ids", source_ids)
            binding.bind_cpu_input("source_lengths", lengths)
            binding.bind_output("cross", self._device, 0)
            self._encoder.run_with_iobinding(binding)
            return DeviceEncoded(binding.get_outputs()[0], lengths, source_ids.shape[1])

    def decode_step(
        self, tokens: Ints, scores: Floats, cache: KeyValueCache, vocabulary: LiveVocabulary | None = None
    ) -> Candidates:
        """See `Runner.decode_step`."""
        assert vocabulary is None, "there is no shortlist on a GPU"
        with explained():
            binding = self._binding(cache)
            binding.send(tokens, scores, cache)
            binding.run()
            best, ids, check = binding.receive(cache.num_sentences)
        parents, found = np.divmod(ids, self._vocab_size)
        return Candidates(best, found, parents, check)

    def _binding(self, cache: KeyValueCache) -> "_DeviceBinding":
        """The one for the place where the cache's keys and values lie; the most recently used ones are kept."""
        own, cross = _device_slots(cache)
        num_slots = max(own.settle(cache.num_sentences), cross.settle(cache.num_sentences))
        key = (num_slots, own.place, cross.place)
        bindings = self._bindings.setdefault(cache, OrderedDict())
        binding = bindings.pop(key, None)
        if binding is None:
            _drop_older(bindings, own.place.generation, cross.place.generation)
            binding = self._new_binding(cache, num_slots)
        bindings[key] = binding
        if len(bindings) > _MAX_BINDINGS:
            bindings.popitem(last=False)
        return binding

    def _new_binding(self, cache: KeyValueCache, num_slots: int) -> "_DeviceBinding":
        return _DeviceBinding(self._decoder, self._device, cache, num_slots, self.storage.dtype, self._run_options())

    def _run_options(self) -> ort.RunOptions | None:
        """A number of its own for each binding, by which its step is recorded; -1 when there are too many."""
        if not self._records:
            return None
        self._num_recorded += 1
        options = ort.RunOptions()
        number = self._num_recorded if self._num_recorded <= _MAX_RECORDED else -1
        options.add_run_config_entry("gpu_graph_id", str(number))
        return options


_Key = tuple[int, Place, Place]  # sentences, where self-attention and where cross-attention lie


class _DeviceBinding:
    """The memory that the step graph reads and writes for a batch in one place.

    Its addresses never change, as a recorded step demands.
    """

    def __init__(
        self,
        decoder: ort.InferenceSession,
        device: Device,
        cache: KeyValueCache,
        num_slots: int,
        dtype: type[np.floating[Any]],
        options: ort.RunOptions | None,
    ) -> None:
        B, K, width = num_slots, cache.beam_size, num_candidates(cache.beam_size)
        own, cross = _device_slots(cache)
        self._decoder, self._options = decoder, options
        self._io = decoder.io_binding()
        self._host: dict[str, npt.NDArray[Any]] = {  # what is sent, by name
            "tokens": np.zeros((B, K), np.int64),
            "scores": np.zeros((B, K, 1), np.float32),
            "past_lengths": np.zeros((B, 1), np.int64),
            "columns": np.zeros(B, np.int64),
            "source_lengths": np.ones(B, np.int32),
            "self_mask": np.zeros((B, 1, K, own.place.num_columns), dtype),
        }
        self._sent = {name: on_device(array, device) for name, array in self._host.items()}
        self._constants = [
            on_device(np.zeros(0, np.int64), device),
            on_device(np.zeros(0, np.float32), device),
            on_device(np.array([width], np.int64), "cpu"),  # TopK reads it on the host
        ]
        constants = zip(("edit_places", "edit_values", "num_candidates"), self._constants, strict=True)
        for name, value in (*self._sent.items(), *constants):
            self._io.bind_ortvalue_input(name, value)
        for kind, slots in (("cross", cross), ("self", own)):
            shape = [B, *_slot_shape(slots)]
            for name, address in zip(layer_names(kind, slots.shape.num_layers), slots.addresses(), strict=True):
                self._io.bind_input(name, device, 0, dtype, shape, address)
                if kind == "self":
                    self._io.bind_output(f"{name}_out", device, 0, dtype, shape, address)
        self._received = [
            on_device(array, device)
            for array in (np.zeros((B, width), np.float32), np.zeros((B, width), np.int64), np.zeros(B, np.float32))
        ]
        for name, value in zip(("candidate_scores", "candidate_ids", "check"), self._received, strict=True):
            self._io.bind_ortvalue_output(name, value)

    def send(self, tokens: Ints, scores: Floats, cache: KeyValueCache) -> None:
        """What this step is about; slots without a sentence begin again and again at their first column."""
        values = {
            "tokens": tokens,
            "scores": scores[:, :, None],
            "past_lengths": cache.past_lengths,
            "columns": cache.columns,
            "source_lengths": cache.source_lengths,
            "self_mask": cache.mask,
        }
        num_sentences = cache.num_sentences
        for name, value in values.items():
            array = self._host[name]
            array[:num_sentences] = value
            array[num_sentences:] = 1 if name == "source_lengths" else 0
            self._sent[name].update_inplace(array)

    def run(self) -> None:
        """One step."""
        self._decoder.run_with_iobinding(self._io, self._options)

    def receive(self, num_sentences: int) -> list[npt.NDArray[Any]]:
        """Scores, ids and check of the sentences that there are."""
        return [value.numpy()[:num_sentences] for value in self._received]


def create(spec: EngineSpec) -> DeviceRunner:
    """The runner of an engine process on a GPU.

    Raises:
        DeviceError: the GPU cannot be used; the message says what is missing.
        BundleError: the bundle cannot be used, or has no graphs for a GPU.
    """
    require_cuda()
    bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
    paths = graph_paths(bundle, spec.precision)
    sessions = {
        name: open_on_cuda(path, cuda_graphs=spec.cuda_graphs and name == "decoder_step")
        for name, path in paths.items()
    }
    return DeviceRunner(bundle, sessions, "cuda", records=spec.cuda_graphs)


def graph_paths(bundle: Bundle, precision: str | None = None) -> dict[str, Any]:
    """Where the graphs of `GRAPHS` lie.

    Raises:
        BundleError: the bundle has none for a GPU, or another precision was asked for.
    """
    if precision not in (None, GPU_PRECISION):
        raise BundleError(f"{precision} graphs are for CPUs; on a GPU, {GPU_PRECISION} ones run")
    if GPU_PRECISION not in bundle.manifest.variants:
        raise BundleError(
            f"{bundle.directory} has no {GPU_PRECISION!r} graphs; "
            f"`python -m export {bundle.directory} OTHER --precision {GPU_PRECISION}` makes a bundle with them"
        )
    variant = bundle.variant(GPU_PRECISION)
    return {name: bundle.path(getattr(variant, name)) for name in GRAPHS}


def _drop_older(bindings: OrderedDict[_Key, _DeviceBinding], own: int, cross: int) -> None:
    """Drop those to memories of other generations: these may be freed, and no key asks for them again."""
    for key in [key for key in bindings if (key[1].generation, key[2].generation) != (own, cross)]:
        del bindings[key]


def _device_slots(cache: KeyValueCache) -> tuple[DeviceSlots, DeviceSlots]:
    own, cross = cache.slots
    assert isinstance(own, DeviceSlots)
    assert isinstance(cross, DeviceSlots)
    return own, cross


def _slot_shape(slots: DeviceSlots) -> list[int]:
    """[H, C, d]."""
    return [slots.shape.num_heads, slots.place.num_columns, slots.shape.d_head]
