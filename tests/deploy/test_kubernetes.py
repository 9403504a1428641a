"""Resources for Kubernetes: they keep its schema, and fit together."""

import re
from collections.abc import Iterator

import pytest

from model.bundle import Bundle, included_bundle_dirs

yaml = pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

from tests.deploy.tools import (  # noqa: E402 - needs PyYAML
    DEPLOY,
    KUBERNETES,
    Resource,
    jobs_not_scraped,
    judged,
    of_kind,
    pod_labels,
    problems,
    rendered,
    selects,
)

OVERLAYS = sorted(path.parent for path in (KUBERNETES / "overlays").glob("*/kustomization.yaml"))
LABELS = {"app.kubernetes.io/name": "dragoman"}
DOCUMENT = DEPLOY.parent / "docs" / "deploy.md"

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


def plain_resources() -> Iterator[Resource]:
    """Resources that are whole without their overlay, once they have the labels that kustomize gives them."""
    files = [*sorted((KUBERNETES / "base").glob("*.yaml")), *KUBERNETES.glob("overlays/*/*autoscaler.yaml")]
    for file in files:
        for resource in yaml.safe_load_all(file.read_text()):
            if resource["kind"] == "Deployment":
                resource["spec"]["selector"]["matchLabels"] |= LABELS
                pod_labels(resource).update(LABELS)
            if resource["kind"] != "Kustomization":
                yield resource


def test_resources_keep_the_schema_of_kubernetes():
    resources = list(plain_resources())

    assert {"Deployment", "Service", "HorizontalPodAutoscaler"} <= {resource["kind"] for resource in resources}
    assert problems(resources) == []


def test_tmp_has_room_for_the_weights_that_engines_of_each_included_model_share():
    (deployment,) = [resource for resource in plain_resources() if resource["kind"] == "Deployment"]
    (tmp,) = [volume for volume in deployment["spec"]["template"]["spec"]["volumes"] if volume["name"] == "tmp"]
    (mebibytes,) = re.findall(r"(\d+)Mi", tmp["emptyDir"]["sizeLimit"])
    entries = [entry for path in included_bundle_dirs() for entry in Bundle.load(path).manifest.files.items()]
    weights = [entry.bytes for name, entry in entries if name.startswith("int8/")]

    # Prepared they take three times as much, and so much has to be free while the last model's are prepared.
    assert int(mebibytes) << 20 > 3 * sum(weights) + 3 * sum(weights) / len(included_bundle_dirs())


def test_no_probe_asks_the_port_that_may_have_tls():
    """Kubernetes' own gRPC probes speak none; the chart has the same probes, which its test compares."""
    (deployment,) = [resource for resource in plain_resources() if resource["kind"] == "Deployment"]
    (server,) = deployment["spec"]["template"]["spec"]["containers"]

    assert {name: probe.get("httpGet") for name, probe in server.items() if name.endswith("Probe")} == {
        "startupProbe": {"path": "/readyz", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
        "livenessProbe": {"path": "/healthz", "port": "http"},
    }


def test_schema_refuses_a_field_that_is_misspelt():
    (deployment,) = [resource for resource in plain_resources() if resource["kind"] == "Deployment"]
    deployment["spec"]["replicaz"] = 2

    assert len(problems([deployment])) == 1


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_overlay_gives_resources_that_keep_the_schema_and_fit_together(overlay):
    resources = rendered(overlay)
    deployments = of_kind(resources, "Deployment")

    assert deployments
    assert problems(resources) == []
    for name, deployment in deployments.items():
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert [other for other in deployments if selects(selector, pod_labels(deployments[other]))] == [name]
    for name, service in of_kind(resources, "Service").items():
        selector = service["spec"]["selector"]
        assert any(selects(selector, pod_labels(deployment)) for deployment in deployments.values()), name


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_overlay_leaves_the_number_of_replicas_to_an_autoscaler_that_it_has(overlay):
    resources = rendered(overlay)
    scalers = [*of_kind(resources, "HorizontalPodAutoscaler").values(), *of_kind(resources, "ScaledObject").values()]
    scaled = {scaler["spec"]["scaleTargetRef"]["name"] for scaler in scalers}
    fixed = {name for name, item in of_kind(resources, "Deployment").items() if "replicas" in item["spec"]}

    assert fixed & scaled == set()
    assert fixed | scaled == set(of_kind(resources, "Deployment"))


@pytest.mark.parametrize("file", sorted(KUBERNETES.glob("**/kustomization.yaml")), ids=lambda path: path.parent.name)
def test_kustomization_names_files_that_exist(file):
    content = yaml.safe_load(file.read_text())
    patches = [patch["path"] for patch in content.get("patches", []) if "path" in patch]
    configs = [name for one in content.get("configMapGenerator", []) for name in one["files"]]

    named = [*content.get("resources", []), *content.get("components", []), *patches, *configs]
    assert [name for name in named if not (file.parent / name).exists()] == []


@pytest.fixture
def canary() -> list[Resource]:
    return rendered(KUBERNETES / "overlays" / "canary")


class TestCanary:
    def test_shares_the_services_with_the_stable_replicas_and_has_one_of_its_own(self, canary):
        deployments, services = of_kind(canary, "Deployment"), of_kind(canary, "Service")
        behind = {
            name: {
                other for other, item in deployments.items() if selects(service["spec"]["selector"], pod_labels(item))
            }
            for name, service in services.items()
        }

        assert behind == {
            "dragoman": {"dragoman", "dragoman-canary"},
            "dragoman-headless": {"dragoman", "dragoman-canary"},
            "dragoman-stable": {"dragoman"},
            "dragoman-canary": {"dragoman-canary"},
        }

    def test_differs_from_the_stable_replicas_in_its_model_alone(self, canary):
        stable, other = (
            deployment["spec"]["template"]["spec"] for deployment in of_kind(canary, "Deployment").values()
        )
        (bundle,), (new,) = (pod["containers"][0].pop("env") for pod in (stable, other))
        configs = {pod["volumes"].pop(1)["configMap"]["name"].rpartition("-")[2] for pod in (stable, other)}

        assert bundle["name"] == new["name"] == "DRAGOMAN_ENGINE__BUNDLE"
        assert bundle["value"] != new["value"]
        assert len(configs) == 1  # the hash of what is in it
        assert stable == other

    def test_models_are_read_only(self, canary):
        for deployment in of_kind(canary, "Deployment").values():
            pod = deployment["spec"]["template"]["spec"]
            (mount,) = (item for item in pod["containers"][0]["volumeMounts"] if item["name"] == "models")
            (volume,) = (item for item in pod["volumes"] if item["name"] == "models")

            assert mount["readOnly"]
            assert volume["persistentVolumeClaim"]["readOnly"]


def test_queries_of_the_document_tell_the_versions_of_a_canary_apart(tmp_path):
    """Two replicas, of which the canary fails a tenth of its calls and is slower."""
    by_code, p95 = re.findall(r"^    (.*dragoman_model_info.*)$", DOCUMENT.read_text(), re.MULTILINE)
    rates = {("1", "OK"): 10.0, ("2", "OK"): 4.5, ("2", "INTERNAL"): 0.5}  # calls a second
    labels = {key: f'{{version="{key[0]}", code="{key[1]}"}}' for key in rates}
    expected = [
        (by_code, [{"labels": labels[key], "value": rate} for key, rate in rates.items()]),
        (p95, [{"labels": '{version="1"}', "value": 0.095}, {"labels": '{version="2"}', "value": 0.48}]),
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in two_versions(rates).items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "15m", "exp_samples": samples} for query, samples in expected
        ],
    }
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}))

    judged("promtool", "test", "rules", file, comes_with="the Debian package prometheus")


def two_versions(rates: dict[tuple[str, str], float]) -> dict[str, str]:
    """What two replicas export, each named like its version: one answers within 0.1 s, the other in 0.1 - 0.5 s."""
    series = {}
    for version, buckets in (("1", {"0.1": 300, "+Inf": 300}), ("2", {"0.1": 0, "0.5": 300, "+Inf": 300})):
        labels = f'instance="{version}", model="en-de"'
        series[f'dragoman_model_info{{{labels}, version="{version}", sha256_12="x", provider="cpu"}}'] = "1x20"
        for bound, growth in buckets.items():
            call = f'method="dragoman.v1.TranslationService/Translate", priority="interactive", {labels}'
            name = f'dragoman_request_duration_seconds_bucket{{{call}, code_class="ok", le="{bound}"}}'
            series[name] = f"0+{growth}x20"
    for (version, code), rate in rates.items():
        name = f'dragoman_requests_total{{instance="{version}", method="T", model="en-de", code="{code}"}}'
        series[name] = f"0+{60 * rate:g}x20"
    return series


def test_alerts_of_the_operator_find_the_replicas():
    assert jobs_not_scraped(rendered(KUBERNETES / "overlays" / "monitoring")) == set()


def test_alert_rules_of_the_operator_are_those_that_are_tested():
    """overlays/monitoring/prometheusrule.yaml says how it is made of the other."""
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    rule = yaml.safe_load((KUBERNETES / "overlays" / "monitoring" / "prometheusrule.yaml").read_text())

    assert rule["spec"] == alerts
