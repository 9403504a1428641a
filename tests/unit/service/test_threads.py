"""The thread count follows the container, not the host."""

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


def test_version_2_quota_is_read_from_the_own_group(cgroup):
    assert cgroup("0::/pod/app\n", {"pod/app/cpu.max": "150000 100000\n"}) == 1.5


def test_version_2_word_max_is_no_limit(cgroup):
    assert cgroup("0::/app\n", {"app/cpu.max": "max 100000\n"}) is None


def test_the_tightest_ancestor_wins(cgroup):
    files = {"pod/cpu.max": "200000 100000", "pod/app/cpu.max": "400000 100000", "cpu.max": "max 100000"}

    assert cgroup("0::/pod/app\n", files) == 2.0


def test_inside_a_container_the_root_of_the_mount_holds_the_limit(cgroup):
    assert cgroup("0::/docker/0123abcd\n", {"cpu.max": "100000 100000"}) == 1.0


def test_version_1_quota_is_read_from_the_cpu_controller(cgroup):
    files = {"cpu,cpuacct/app/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/app/cpu.cfs_period_us": "100000\n"}

    assert cgroup("5:memory:/other\n4:cpu,cpuacct:/app\n", files) == 3.0


def test_missing_and_broken_files_are_no_limit(cgroup):
    assert cgroup("0::/gone\n", {}) is None
    assert cgroup("0::/app\n", {"app/cpu.max": "many few\n"}) is None
    assert cgroup("0::/app\n", {"app/cpu.max": "100 0\n"}) is None


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
