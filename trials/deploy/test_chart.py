"""The Helm chart: its resources keep Kubernetes' schema and fit together, and it refuses values it does not know."""

import re
from typing import Any

import pytest

pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

import yaml

from trials.deploy.tools import (
    CHART,
    DEPLOY,
    HELM_COMES_WITH,
    Resource,
    check_query,
    helm_template,
    judged,
    of_kind,
    problems,
    program,
)

DOCS = DEPLOY.parent / "docs"
CANARY = ("models.claim=mine", "models.bundle=en-de/1", "canary.bundle=en-de/2")
VALUES = {
    "defaults": (),
    "hpa": ("autoscaling.by=hpa",),
    "keda": ("autoscaling.by=keda", "monitoring.enabled=true"),
    "gpu": ("gpu.enabled=true",),
    "canary": (*CANARY, "autoscaling.by=hpa", "monitoring.enabled=true"),
}
BUCKETS = "dragoman_queue_duration_seconds_bucket"
CALLS = 'namespace="dragoman", method="dragoman.v1.TranslationService/Translate"'

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


def pods(resources: list[Resource]) -> dict[str, dict[str, Any]]:
    """The pods of each Deployment, by its name."""
    return {name: item["spec"]["template"] for name, item in of_kind(resources, "Deployment").items()}


def server_of(resources: list[Resource], name: str = "dragoman") -> dict[str, Any]:
    (container,) = pods(resources)[name]["spec"]["containers"]
    return dict(container)


def behind(resources: list[Resource], selector: dict[str, str]) -> set[str]:
    """Names of the Deployments whose pods are selected."""
    return {name for name, pod in pods(resources).items() if selector.items() <= pod["metadata"]["labels"].items()}


def blocks(document: str, first_line: str) -> str:
    """The indented block of a document that begins with this line."""
    (found,) = re.findall(rf"^    {first_line}.*\n(?:    .*\n)+", (DOCS / document).read_text(), re.MULTILINE)
    return str(found)


def test_chart_has_no_faults_that_helm_knows():
    assert "0 chart(s) failed" in judged("helm", "lint", "--strict", CHART, comes_with=HELM_COMES_WITH)


@pytest.mark.parametrize("release", ["dragoman", "translate"])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_resources_keep_the_schema_and_fit_together(values, release):
    resources = helm_template(*values, release=release)
    deployments = of_kind(resources, "Deployment")
    scalers = [*of_kind(resources, "HorizontalPodAutoscaler").values(), *of_kind(resources, "ScaledObject").values()]
    scaled = {scaler["spec"]["scaleTargetRef"]["name"] for scaler in scalers}

    assert problems(resources) == []
    for name, deployment in deployments.items():
        assert behind(resources, deployment["spec"]["selector"]["matchLabels"]) == {name}
        assert ("replicas" in deployment["spec"]) == (name not in scaled)
    assert scaled <= deployments.keys()
    for service in of_kind(resources, "Service").values():
        assert behind(resources, service["spec"]["selector"])
    assert (of_kind(resources, "ServiceMonitor").keys() == {release}) == ("monitoring.enabled=true" in values)


def test_gpu_has_a_device_and_the_label_that_the_alert_asks_for():
    resources = helm_template("gpu.enabled=true")
    server = server_of(resources)

    assert {"name": "DRAGOMAN_ENGINE__DEVICE", "value": "cuda"} in server["env"]
    assert (server["resources"]["limits"]["nvidia.com/gpu"], server["image"]) == ("1", "dragoman:gpu")
    assert pods(resources)["dragoman"]["metadata"]["labels"]["accelerator"] == "gpu"


def test_values_reach_the_pod_and_its_configuration():
    values = (
        "env.DRAGOMAN_LIMITS__MAX_TEXTS=64",
        "config=[listen]",
        "replicas=5",
        "image.repository=registry.example/dragoman",
    )
    limits = ("image.tag=1", "networkPolicy.enabled=false", "terminationGracePeriodSeconds=140", "tmpSize=1Gi")
    resources = helm_template("models.claim=mine", "models.bundle=en-de/2", *values, *limits)
    server, pod = server_of(resources), pods(resources)["dragoman"]["spec"]

    assert problems(resources) == []
    assert server["env"] == [
        {"name": "DRAGOMAN_ENGINE__BUNDLE", "value": "/models/en-de/2"},
        {"name": "DRAGOMAN_LIMITS__MAX_TEXTS", "value": "64"},
    ]
    assert server["image"] == "registry.example/dragoman:1"
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in server["volumeMounts"]
    assert pod["volumes"][-1]["persistentVolumeClaim"] == {"claimName": "mine", "readOnly": True}
    assert {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}} in pod["volumes"]
    assert pod["terminationGracePeriodSeconds"] == 140
    assert of_kind(resources, "ConfigMap")["dragoman"]["data"]["dragoman.toml"].strip() == "[listen]"
    assert of_kind(resources, "Deployment")["dragoman"]["spec"]["replicas"] == 5
    assert of_kind(resources, "NetworkPolicy") == {}
    (whole,) = server_of(helm_template("models.claim=mine"))["env"]
    assert whole == {"name": "DRAGOMAN_MODELS__DIRECTORY", "value": "/models"}


def test_secrets_are_mounted_as_the_document_says(tmp_path):
    values = yaml.safe_load(blocks("secure.md", "extraVolumes:"))
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))

    resources = helm_template("models.claim=mine", files=[file])
    server = server_of(resources)
    ports = [port for service in of_kind(resources, "Service").values() for port in service["spec"]["ports"]]

    assert problems(resources) == []
    assert pods(resources)["dragoman"]["spec"]["volumes"][-2:] == values["extraVolumes"]
    assert server["volumeMounts"][-2:] == values["extraVolumeMounts"]
    assert {item["name"]: item["value"] for item in server["env"]}.items() >= values["env"].items()
    assert [port for port in ports if "appProtocol" in port] == []


def test_canary_shares_the_services_with_the_stable_replicas_and_differs_in_its_model_alone():
    resources = helm_template(*CANARY)
    stable, canary = (pods(resources)[name]["spec"] for name in ("dragoman", "dragoman-canary"))
    bundles = [pod["containers"][0].pop("env") for pod in (stable, canary)]

    assert bundles == [[{"name": "DRAGOMAN_ENGINE__BUNDLE", "value": f"/models/en-de/{number}"}] for number in (1, 2)]
    assert stable == canary
    services = of_kind(resources, "Service")
    assert {name: behind(resources, service["spec"]["selector"]) for name, service in services.items()} == {
        "dragoman": {"dragoman", "dragoman-canary"},
        "dragoman-headless": {"dragoman", "dragoman-canary"},
        "dragoman-stable": {"dragoman"},
        "dragoman-canary": {"dragoman-canary"},
    }


@pytest.mark.parametrize(
    "values",
    [
        *("replica: 2", "autoscaling: {by: cpu}", "models: {bundle: en-de/2}", "canary: {bundle: en-de/2}"),
        *("appProtocol: 2", "monitoring: {enabled: maybe}", "tmpSize: 1e9", "terminationGracePeriodSeconds: long"),
        "extraVolumes: [tls]",
        "env: {DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS: 1000000}",  # which a template writes as 1e+06
    ],
)
def test_chart_refuses_values_that_it_does_not_know(values, tmp_path):
    program("helm", HELM_COMES_WITH)
    file = tmp_path / "values.yaml"
    file.write_text(values)

    with pytest.raises(AssertionError, match="values don't meet the specifications"):
        helm_template(files=[file])


@pytest.mark.parametrize("release", ["dragoman", "translate"])
def test_alerts_are_those_that_are_tested_and_find_the_replicas_of_a_release_of_any_name(release):
    """The operator gives targets the value of the Service's label `jobLabel` as `job`."""
    resources = helm_template("monitoring.enabled=true", release=release)
    (rule,) = of_kind(resources, "PrometheusRule").values()
    (monitor,) = of_kind(resources, "ServiceMonitor").values()
    labels = of_kind(resources, "Service")[release]["metadata"]["labels"]

    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {*re.findall(r'\bjob="([^"]+)"', str(rule["spec"]))} == {labels[monitor["spec"]["jobLabel"]]}


class TestAutoscaling:
    @pytest.fixture
    def wait_trigger(self) -> dict[str, Any]:
        """KEDA's trigger by how long calls wait."""
        (scaled,) = of_kind(helm_template("autoscaling.by=keda"), "ScaledObject").values()
        (found,) = (item for item in scaled["spec"]["triggers"] if BUCKETS in item["metadata"]["query"])
        return dict(found)

    def test_adapter_s_rule_adds_up_the_models_of_each_pod(self, tmp_path):
        (rule,) = yaml.safe_load(blocks("deploy.md", "- seriesQuery:"))
        series = rule["seriesQuery"].partition("{")[0]
        filled = {"Series": series, "LabelMatchers": 'namespace="dragoman",pod=~"a|b"', "GroupBy": "pod"}
        waiting = {("a", "en-de"): 700, ("a", "de-en"): 300, ("b", "en-de"): 5, ("c", "en-de"): 9}
        values = {
            f'{series}{{namespace="dragoman", pod="{pod}", model="{model}"}}': f"{tokens}x20"
            for (pod, model), tokens in waiting.items()
        }

        assert f"metric: {{name: {series}}}" in (CHART / "templates" / "autoscaling.yaml").read_text()
        assert rule["resources"]["overrides"] == {name: {"resource": name} for name in ("namespace", "pod")}
        query = re.sub(r"<<\.(\w+)>>", lambda found: filled[found[1]], rule["metricsQuery"])
        check_query(query, values, {'{pod="a"}': 1_000.0, '{pod="b"}': 5.0}, tmp_path)

    def test_long_waits_multiply_the_replicas_and_the_policy_bounds_the_growth(self, wait_trigger):
        """AverageValue, KEDA's default, wants the value over the threshold: 3 replicas where 4 have calls wait 3 s."""
        (keda,) = of_kind(helm_template("autoscaling.by=keda"), "ScaledObject").values()
        (hpa,) = of_kind(helm_template("autoscaling.by=hpa"), "HorizontalPodAutoscaler").values()
        bounded = {"scaleUp": hpa["spec"]["behavior"]["scaleUp"]}

        assert (wait_trigger["metricType"], wait_trigger["metadata"]["threshold"]) == ("Value", "1")
        assert keda["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == bounded
        assert bounded["scaleUp"]["policies"] == [{"type": "Pods", "value": 2, "periodSeconds": 30}]

    def test_time_that_batch_work_and_streams_wait_does_not_count(self, wait_trigger, tmp_path):
        waits = {
            (CALLS, "interactive"): {"0.5": 0, "1": 60, "60": 60},  # 0.975 s
            (CALLS, "batch"): {"0.5": 0, "1": 0, "60": 600},
            (CALLS.replace("/Translate", "/TranslateStream"), "interactive"): {"0.5": 0, "1": 0, "60": 600},
        }
        series = {
            f'{BUCKETS}{{{calls}, model="m", priority="{priority}", le="{bound}"}}': f"0+{growth}x20"
            for (calls, priority), buckets in waits.items()
            for bound, growth in {**buckets, "+Inf": buckets["60"]}.items()
        }

        check_query(wait_trigger["metadata"]["query"], series, {"{}": 0.975}, tmp_path)
