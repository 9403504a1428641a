"""The models of a front process: where they come from, what is asked of a bundle, and how each is run.

Imports little on purpose: an engine takes about a second to load its model, and the front process's own libraries load
meanwhile.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from model.bundle import GPU_PRECISION, Bundle
from service.config import ServerConfig
from service.engine.cuda.device import Device, DeviceChoice, choose_device
from service.engine.spec import EngineSpec
from service.engines.dispatcher import Dispatcher
from service.grpc import servicer, stream_servicer
from service.registry.bundle_check import IN_ENGINE, check_identity
from service.registry.graph_files import check_graph_files
from service.registry.host import HostConfig, ModelHost
from service.registry.reloader import Reloader
from service.registry.repository import Candidate, IncludedBundles, Repository, SingleBundle, Source
from service.registry.signature import Signatures
from service.registry.watcher import ModelWatcher
from service.server.engine_start import dispatch_config, engine_spec, heartbeat_interval_s
from service.telemetry.logs import get_logger
from service.telemetry.metrics import Metrics

TOKENIZER_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What a front process translates with."""

    metrics: Metrics
    reloader: Reloader
    watcher: ModelWatcher
    executor: ThreadPoolExecutor  # for texts that are too long for the event loop

    async def close(self) -> None:
        """End everything, in whatever state it is."""
        await self.reloader.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


def host_models(config: ServerConfig) -> Models:
    """Nothing is loaded yet.

    Raises:
        KeyFileError: the key for signatures cannot be used.
    """
    metrics = Metrics(methods=(f"{servicer.SERVICE_NAME}/Translate", stream_servicer.METHOD))
    executor = ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix="tokenizer")
    source, watch = model_source(config), config.models.watch_period_s if config.models.watch else None
    books = Books(metrics)
    factory = HostFactory(config, metrics)
    drain_s = config.limits.max_request_seconds
    reloader = Reloader(source, BundleChecker(config), factory, books, drain_s=drain_s)
    books.reloader = reloader
    return Models(metrics=metrics, reloader=reloader, watcher=ModelWatcher(reloader, source, watch), executor=executor)


def model_source(config: ServerConfig) -> Source:
    """Where the bundles are."""
    if config.models.directory is not None:
        return Repository(config.models.directory)
    return IncludedBundles() if config.engine.bundle is None else SingleBundle(config.engine.bundle)


def device_for(bundle: Bundle, setting: str) -> DeviceChoice:
    """Where a bundle's graphs run; the first time, for `auto`, this takes a process and a second."""
    return _choose_device(setting, has_graphs=GPU_PRECISION in bundle.manifest.variants)


_choose_device = lru_cache(choose_device)


class BundleChecker:
    """Opens a candidate's bundle, or says why it may not serve; may be called from any thread.

    Raises:
        KeyFileError: the key for signatures cannot be used.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._device = config.engine.device
        self._precision = config.engine.precision
        key = config.models.public_key
        self._signatures = Signatures(key) if key is not None else None

    def __call__(self, candidate: Candidate) -> Bundle:
        """The bundle.

        Raises:
            BundleError: it is none, is damaged, is another model than its directory says, or is not signed.
        """
        signed = "" if self._signatures is None else self._signatures.check(candidate.directory)
        bundle = Bundle.load(candidate.directory, manifest_sha256=signed)  # nobody may replace it between the two
        check_identity(bundle, candidate)
        if device_for(bundle, self._device).device == "cpu":
            bundle.variant(self._precision)  # raises if there is none
        check_graph_files(bundle)
        return bundle


class HostFactory:
    """Makes hosts, all in the way this server runs models."""

    def __init__(self, config: ServerConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._host = HostConfig(
            precision=config.engine.precision,
            max_characters=config.limits.max_characters,
            max_beam_size=config.limits.max_beam_size,
            self_test=config.models.self_test,
            self_test_timeout_s=config.lifecycle.start_timeout_s,
        )

    def __call__(self, bundle: Bundle) -> ModelHost:
        """A host of this bundle, not started."""
        observer = self._metrics.model(bundle.manifest.name)
        choice = device_for(bundle, self._config.engine.device)
        if choice.reason:
            asked = self._config.engine.device
            get_logger().warning("device_not_used", asked=asked, used=choice.device, reason=choice.reason)
        keeping = dispatch_config(self._config, choice.device)
        dispatcher = Dispatcher(self.spec(bundle, choice.device), keeping, observer=observer)
        return ModelHost(bundle, dispatcher, replace(self._host, device=choice.device))

    def spec(self, bundle: Bundle, device: Device = "cpu") -> EngineSpec:
        """What its engines are told."""
        return replace(
            engine_spec(bundle.directory, self._config.engine, device),
            heartbeat_interval_s=heartbeat_interval_s(self._config),
            preflight=IN_ENGINE,
            manifest_sha256=bundle.manifest_sha256,
        )


# Gauge of a model: attribute of `Dispatcher`.
_GAUGES = {
    "queue_requests": "queued_jobs",
    "queue_tokens": "queued_tokens",
    "queue_work_seconds": "queued_work_s",
    "running_jobs": "running_jobs",
    "live_rows": "live_rows",
    "engines": "engines",
    "engines_missing": "missing_engines",
}


class Books:
    """A `ReloadObserver` that keeps the metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.reloader: Reloader | None = None  # whose hosts are watched

    def model_changed(self, name: str, result: str) -> None:
        """See `ReloadObserver`."""
        of_model = self._metrics.model(name)
        of_model.changed(result)
        of_model.watch("model_refused", partial(self._is_refused, name))

    def model_loaded(self, host: ModelHost) -> None:
        """See `ReloadObserver`."""
        info = host.info
        of_model = self._metrics.model(info.name)
        of_model.loaded(version=info.version, sha256_12=host.sha256_12, provider=info.device)
        for gauge, attribute in _GAUGES.items():
            of_model.watch(gauge, partial(self._sum, info.name, attribute))

    def model_unloaded(self, host: ModelHost) -> None:
        """See `ReloadObserver`."""
        info = host.info
        self._metrics.model(info.name).unloaded(version=info.version, sha256_12=host.sha256_12, provider=info.device)

    def _is_refused(self, name: str) -> float:
        return float(self.reloader is not None and self.reloader.is_refused(name))

    def _sum(self, name: str, attribute: str) -> float:
        """Over all versions of a model that have engines: its figures are those of all of them together."""
        hosts = self.reloader.hosts if self.reloader else []
        return float(sum(getattr(host.dispatcher, attribute) for host in hosts if host.info.name == name))
