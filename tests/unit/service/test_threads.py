"""The thread count follows the container, not the host; nobody waits for a daemon thread that hangs."""

import os

import pytest

from service import threads
from service.threads import available_threads, cpu_quota


@pytest.fixture
def cgroup(tmp_path):
    """Writes a cgroup tree and asks for its quota."""

    def quota(membership: str, files: dict[str, str]) -> float | None:
        (tmp_path / "membership").write_text(membership)
        for name, text in files.items():
            path = tmp_path / "mount" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return cpu_quota(tmp_path / "membership", tmp_path / "mount")

    return quota


VERSION_1 = {"cpu,cpuacct/app/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/app/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/app\n", {"app/cpu.max": "max 100000\n"}, None),
        (  # the tightest ancestor
            "0::/pod/app\n",
            {"pod/cpu.max": "150000 100000", "pod/app/cpu.max": "400000 100000", "cpu.max": "max 100000"},
            1.5,
        ),
        ("0::/docker/0123abcd\n", {"cpu.max": "100000 100000"}, 1.0),  # inside a container
        ("5:memory:/other\n4:cpu,cpuacct:/app\n", VERSION_1, 3.0),
        ("0::/gone\n", {}, None),
        ("0::/app\n", {"app/cpu.max": "many few\n"}, None),
        ("0::/app\n", {"app/cpu.max": "100 0\n"}, None),
    ],
)
def test_quota_is_that_of_the_own_control_group_or_of_a_tighter_one_above_it(cgroup, membership, files, quota):
    assert cgroup(membership, files) == quota


@pytest.mark.promise("A16")
@pytest.mark.parametrize(
    ("affinity", "quota", "expected"), [(8, None, 8), (8, 2.9, 2), (2, 16.0, 2), (4, 0.5, 1), (1, None, 1)]
)
def test_available_threads_is_the_smaller_of_affinity_and_whole_quota(monkeypatch, affinity, quota, expected):
    monkeypatch.setattr(threads, "affine_cpus", lambda: affinity)
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)

    assert available_threads() == expected


def test_affinity_is_the_process_s_own_not_the_host_s():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})

        assert threads.affine_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)
