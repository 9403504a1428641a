"""How the settings decide what is asked of a bundle, how it is run, and what is counted."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from model.bundle import Bundle, BundleError
from service.config import EngineConfig, LimitsConfig, ModelsConfig, ServerConfig
from service.engine.cpu import runner
from service.engine.cuda import device_runner
from service.registry.bundle_check import IN_ENGINE, check_in_engine
from service.registry.repository import Candidate, IncludedBundles, Repository, SingleBundle
from service.server.model_hosting import Books, BundleChecker, HostFactory, model_source
from service.telemetry.metrics import Metrics
from tests.fakes.echo_bundle import write_echo_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_echo_bundle(tmp_path / "echo" / "1.2.3")


def candidate(directory: Path, name: str = "echo", version: str = "1.2.3") -> Candidate:
    return Candidate(directory=directory, name=name, version=version)


def test_bundle_that_is_what_its_directory_says_is_accepted(bundle):
    assert BundleChecker(ServerConfig())(candidate(bundle)).manifest.name == "echo"


def test_bundle_of_no_particular_name_is_accepted(bundle):
    assert BundleChecker(ServerConfig())(candidate(bundle, "", "")).manifest.name == "echo"


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [("other", "1.2.3", "a manifest of name 'echo'"), ("echo", "1.2.4", "a manifest of version '1.2.3'")],
)
def test_bundle_of_another_name_or_version_is_refused(bundle, name, version, message):
    with pytest.raises(BundleError, match=message):
        BundleChecker(ServerConfig())(candidate(bundle, name, version))


def test_bundle_without_the_precision_that_is_set_is_refused(bundle):
    config = ServerConfig(engine=EngineConfig(precision="int8"))

    with pytest.raises(BundleError, match="has no 'int8' graphs"):
        BundleChecker(config)(candidate(bundle))


def test_engines_are_told_their_bundle_and_to_check_it_first(bundle):
    config = ServerConfig(engine=EngineConfig(threads=3, precision="fp32"), limits=LimitsConfig(max_beam_size=1))
    loaded = Bundle.load(bundle)

    factory = HostFactory(config, Metrics())
    spec, host = factory.spec(loaded), factory(loaded)

    assert (spec.bundle_dir, spec.num_threads, spec.precision) == (bundle, 3, "fp32")
    assert (spec.preflight, spec.manifest_sha256) == (IN_ENGINE, loaded.manifest_sha256)
    assert host.info.max_beam_size == 1


def test_engine_refuses_a_bundle_that_was_replaced(bundle):
    spec = HostFactory(ServerConfig(), Metrics()).spec(Bundle.load(bundle))
    check_in_engine(spec)

    write_echo_bundle(bundle, version="2")

    with pytest.raises(BundleError, match="holds another bundle than when this one was checked"):
        check_in_engine(spec)


def test_engines_are_to_run_the_bundle_that_was_checked_whatever_has_taken_its_place_since(bundle):
    factory = HostFactory(ServerConfig(), Metrics())
    checked = BundleChecker(ServerConfig())(candidate(bundle))
    before = factory.spec(checked).manifest_sha256

    write_echo_bundle(bundle, version="2")

    assert factory.spec(checked).manifest_sha256 == before
    assert factory(checked).sha256_12 == before[:12]


@pytest.mark.parametrize("create", [runner.create_runner, device_runner.create])
def test_bundle_that_is_replaced_behind_the_preflight_is_not_run(bundle, monkeypatch, create):
    monkeypatch.setattr(device_runner, "require_cuda", lambda: None)
    spec = HostFactory(ServerConfig(), Metrics()).spec(Bundle.load(bundle))
    check_in_engine(spec)

    write_echo_bundle(bundle, version="2")

    with pytest.raises(BundleError, match="holds another bundle than when this one was checked"):
        create(spec)


def test_bundles_come_from_where_the_settings_say_or_with_the_package(tmp_path):
    assert model_source(ServerConfig()) == IncludedBundles()
    assert model_source(ServerConfig(engine=EngineConfig(bundle=tmp_path))) == SingleBundle(tmp_path)
    assert model_source(ServerConfig(models=ModelsConfig(directory=tmp_path))) == Repository(tmp_path)


def test_refusal_of_a_model_that_never_served_is_on_the_page_for_as_long_as_it_stands():
    metrics, refused = Metrics(), {"new"}
    books = Books(metrics)
    reloader: Any = SimpleNamespace(hosts=[], is_refused=lambda name: name in refused)
    books.reloader = reloader
    books.model_changed("new", "refused")
    books.model_changed("good", "loaded")

    read = metrics.registry.get_sample_value
    before = [read("dragoman_model_refused", {"model": name}) for name in ("new", "good")]
    refused.clear()

    assert before == [1.0, 0.0]
    assert read("dragoman_model_refused", {"model": "new"}) == 0.0


def test_gauges_of_a_model_are_of_all_its_versions_together():
    metrics = Metrics()
    books = Books(metrics)

    def host(name: str, version: str, jobs: int) -> Any:
        info = SimpleNamespace(name=name, version=version, device="cpu")
        load = SimpleNamespace(
            **dict.fromkeys(("queued_jobs", "queued_tokens", "queued_work_s", "running_jobs", "live_rows"), jobs),
            **dict.fromkeys(("engines", "missing_engines"), jobs),
        )
        return SimpleNamespace(info=info, dispatcher=load, sha256_12=f"sha{version}")

    old, new, other = host("a", "1", 2), host("a", "2", 3), host("b", "1", 100)
    reloader: Any = SimpleNamespace(hosts=[new, old, other], is_refused=lambda name: False)
    books.reloader = reloader

    books.model_loaded(old)
    books.model_unloaded(old)
    books.model_loaded(new)
    books.model_changed("a", "loaded")

    page = b"".join(metrics.exposition()).decode()
    for gauge in ("queue_requests", "queue_tokens", "running_jobs", "live_rows", "engines", "engines_missing"):
        assert f'dragoman_{gauge}{{model="a"}} 5.0' in page
    assert 'dragoman_model_info{model="a",provider="cpu",sha256_12="sha2",version="2"} 1.0' in page
    assert 'version="1"' not in page
    assert 'dragoman_model_reload_total{model="a",result="loaded"} 1.0' in page
    assert 'dragoman_model_reload_total{model="a",result="refused"} 0.0' in page
