"""The Helm chart: it says the same as the kustomizations, and refuses values that it does not know."""

import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

from tests.deploy.tools import (  # noqa: E402 - needs PyYAML
    DEPLOY,
    KUBERNETES,
    Resource,
    jobs_not_scraped,
    judged,
    of_kind,
    problems,
    program,
    rendered,
)

CHART = DEPLOY / "helm" / "dragoman"
COMES_WITH = "Helm, version 3 or 4"
OF_THE_CHART = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}
# The minor version of Kubernetes 1 that brought each: kubernetes.io/docs/reference/using-api/deprecation-guide.
SINCE = {"v1": 0, "apps/v1": 9, "networking.k8s.io/v1": 8, "policy/v1": 21, "autoscaling/v2": 23}
OF_OPERATORS = {"keda.sh/v1alpha1", "monitoring.coreos.com/v1"}
VALUES = {
    "base": (),
    "overlays/cpu": ("autoscaling.by=hpa",),
    "overlays/keda": ("autoscaling.by=keda",),
    "overlays/monitoring": ("autoscaling.by=hpa", "monitoring.enabled=true"),
    "overlays/gpu": ("gpu.enabled=true",),
}

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


def helm_template(*values: str, files: Sequence[Path] = (), release: str = "dragoman") -> list[Resource]:
    """The chart's resources with these values."""
    set_them = [word for file in files for word in ("--values", str(file))]
    set_them += [word for value in values for word in ("--set-string" if value.startswith("env.") else "--set", value)]
    text = judged("helm", "template", release, CHART, "--namespace", "dragoman", *set_them, comes_with=COMES_WITH)
    return list(yaml.safe_load_all(text))


def what_matters(resources: list[Resource]) -> dict[tuple[str, str], Any]:
    """By kind and name, without labels and names that tell a release, or a version of a configuration, from another."""
    kept = {}
    for resource in resources:
        name = resource["metadata"]["name"]
        if resource["kind"] == "Deployment":
            resource["spec"]["template"]["metadata"].pop("annotations", None)  # the hash of the configuration
            resource["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "dragoman"
        if resource["kind"] == "ConfigMap":
            name, resource["data"] = "dragoman", {key: text.strip() for key, text in resource["data"].items()}
        if resource["kind"] != "Namespace":  # Helm's is given on its command line
            kept[resource["kind"], name] = pruned({key: resource[key] for key in resource if key != "metadata"})
    return kept


def pruned(value: Any) -> Any:
    """Without the labels of a release; part-of, which not every kustomization gives to every object, is one here."""
    if isinstance(value, dict):
        left_out = OF_THE_CHART | {"app.kubernetes.io/part-of"}
        return {key: pruned(item) for key, item in value.items() if key not in left_out}
    return [pruned(item) for item in value] if isinstance(value, list) else value


def test_chart_has_no_faults_that_helm_knows():
    said = judged("helm", "lint", "--strict", CHART, comes_with=COMES_WITH)

    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("kustomization", VALUES)
def test_chart_gives_the_resources_of_the_kustomization(kustomization):
    chart, resources = helm_template(*VALUES[kustomization]), rendered(KUBERNETES / kustomization)
    if kustomization == "base":  # it leaves the choice of the image to its overlays
        of_kind(resources, "Deployment")["dragoman"]["spec"]["template"]["spec"]["containers"][0]["image"] += ":cpu"

    assert problems(chart) == []
    assert what_matters(chart) == what_matters(resources)


def test_volume_of_models_settings_and_configuration_come_from_values():
    values = (
        "models.claim=mine",
        "models.bundle=en-de/2",
        "env.DRAGOMAN_LIMITS__MAX_TEXTS=64",
        "config=[listen]",
        "replicas=5",
        "image.repository=registry.example/dragoman",
        "image.tag=1",
        "networkPolicy.enabled=false",
    )
    resources = helm_template(*values)
    deployment = of_kind(resources, "Deployment")["dragoman"]
    pod = deployment["spec"]["template"]["spec"]
    server = pod["containers"][0]

    assert problems(resources) == []
    assert server["env"] == [
        {"name": "DRAGOMAN_ENGINE__BUNDLE", "value": "/models/en-de/2"},
        {"name": "DRAGOMAN_LIMITS__MAX_TEXTS", "value": "64"},
    ]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in server["volumeMounts"]
    assert pod["volumes"][-1]["persistentVolumeClaim"] == {"claimName": "mine", "readOnly": True}
    assert of_kind(resources, "ConfigMap")["dragoman"]["data"]["dragoman.toml"].strip() == "[listen]"
    assert deployment["spec"]["replicas"] == 5
    assert server["image"] == "registry.example/dragoman:1"
    assert of_kind(resources, "NetworkPolicy") == {}


def test_secrets_are_mounted_as_the_document_says(tmp_path):
    (block,) = re.findall(
        r"^    extraVolumes:\n(?:    .*\n)+", (DEPLOY.parent / "docs" / "secure.md").read_text(), re.MULTILINE
    )
    values = yaml.safe_load(block)
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))

    resources = helm_template("models.claim=mine", files=[file])

    (pod,) = (item["spec"]["template"]["spec"] for item in of_kind(resources, "Deployment").values())
    assert problems(resources) == []
    assert pod["volumes"][-2:] == values["extraVolumes"]
    assert pod["containers"][0]["volumeMounts"][-2:] == values["extraVolumeMounts"]
    assert {item["name"]: item["value"] for item in pod["containers"][0]["env"]}.items() >= values["env"].items()
    assert app_protocols(resources) == {None}


def app_protocols(resources: list[Resource]) -> set[str | None]:
    """What Services say of their gRPC ports."""
    ports = [port for service in of_kind(resources, "Service").values() for port in service["spec"]["ports"]]
    return {port.get("appProtocol") for port in ports if port["name"] == "grpc"}


def test_protocol_of_the_grpc_ports_is_what_the_values_say():
    resources = helm_template("appProtocol=https")

    assert problems(resources) == []
    assert app_protocols(resources) == {"https"}


def test_patch_of_the_document_leaves_the_protocol_out_of_every_service(tmp_path):
    """What a kustomization does for TLS; the canary has Services of its own."""
    (block,) = re.findall(
        r"^    patches:\n(?:    .*\n)+", (DEPLOY.parent / "docs" / "secure.md").read_text(), re.MULTILINE
    )
    overlay = os.path.relpath(KUBERNETES / "overlays" / "canary", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [overlay]} | yaml.safe_load(block)))

    resources = rendered(tmp_path)

    assert problems(resources) == []
    assert len(of_kind(resources, "Service")) == 4
    assert app_protocols(resources) == {None}


@pytest.mark.parametrize("release", ["dragoman", "translate"])
def test_alerts_find_the_replicas_of_a_release_of_any_name(release):
    assert jobs_not_scraped(helm_template("monitoring.enabled=true", release=release)) == set()


def test_claim_without_a_bundle_is_served_whole():
    (pod,) = (
        item["spec"]["template"]["spec"] for item in of_kind(helm_template("models.claim=mine"), "Deployment").values()
    )

    assert pod["containers"][0]["env"] == [{"name": "DRAGOMAN_MODELS__DIRECTORY", "value": "/models"}]


def test_limits_of_the_pod_that_settings_can_run_into_are_values():
    resources = helm_template("terminationGracePeriodSeconds=140", "tmpSize=1Gi", "env.DRAGOMAN_LIFECYCLE__GRACE_S=120")
    (pod,) = (item["spec"]["template"]["spec"] for item in of_kind(resources, "Deployment").values())
    (tmp,) = (volume for volume in pod["volumes"] if volume["name"] == "tmp")

    assert problems(resources) == []
    assert pod["terminationGracePeriodSeconds"] == 140
    assert tmp["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_numbers_in_the_environment_are_text_or_refused(tmp_path):
    """A template writes the number 1000000 as 1e+06, which no setting takes."""
    program("helm", COMES_WITH)
    file = tmp_path / "values.yaml"
    file.write_text("env: {DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS: 1000000}")

    (pod,) = (
        item["spec"]["template"]["spec"]
        for item in of_kind(helm_template("env.DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS=1000000"), "Deployment").values()
    )
    assert pod["containers"][0]["env"] == [{"name": "DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS", "value": "1000000"}]
    with pytest.raises(AssertionError, match=r"specifications[^$]*DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS"):
        helm_template(files=[file])


@pytest.mark.parametrize(
    "value",
    [
        "replica=2",
        "autoscaling.by=cpu",
        "models.bundle=en-de/2",
        "monitoring.enabled=maybe",
        "tmpSize=1e9",
        "terminationGracePeriodSeconds=long",
        "extraVolumes[0]=tls",
        "appProtocol=2",
    ],
)
def test_chart_refuses_values_that_it_does_not_know(value):
    program("helm", COMES_WITH)

    with pytest.raises(AssertionError, match="values don't meet the specifications"):
        helm_template(value)


def test_chart_has_the_version_of_the_project():
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == project["version"]


def test_chart_asks_for_the_first_kubernetes_that_has_every_kind():
    templates = "\n".join(file.read_text() for file in (CHART / "templates").glob("*.yaml"))
    versions = {*re.findall(r"^apiVersion: (.*)$", templates, re.MULTILINE)} - OF_OPERATORS

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["kubeVersion"] == f">=1.{max(SINCE[version] for version in versions)}.0-0"
