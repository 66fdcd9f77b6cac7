"""Which processes the OOM killer ended, by files of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.launcher.local.oom import KernelPaths, OomDetector, find_kill_counter, read_kill_count


@pytest.fixture
def paths(tmp_path: Path) -> KernelPaths:
    """A machine without a kernel log that we may read."""
    paths = KernelPaths(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "kmsg")
    (paths.proc / "7").mkdir(parents=True)
    return paths


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def in_v2(paths: KernelPaths, kills: int) -> Path:
    put(paths.proc / "7" / "cgroup", "0::/jobs/a\n")
    return put(paths.cgroup / "jobs" / "a" / "memory.events", f"low 0\nhigh 4\noom {kills}\noom_kill {kills}\n")


def in_v1(paths: KernelPaths, kills: int) -> Path:
    put(paths.proc / "7" / "cgroup", "5:cpu,cpuacct:/\n4:memory:/jobs/a\n0::/\n")
    return put(
        paths.cgroup / "memory" / "jobs" / "a" / "memory.oom_control",
        f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
    )


def in_root_of_v2(paths: KernelPaths, kills: int) -> Path:
    put(paths.proc / "7" / "cgroup", "0::/\n")
    return put(paths.proc / "vmstat", f"nr_free_pages 12\noom_kill {kills}\nswap_ra 0\n")


@pytest.mark.parametrize("write_counter", [in_v2, in_v1, in_root_of_v2])
def test_an_oom_kill_counted_by_the_cgroup_explains_one_exit(paths: KernelPaths, write_counter: object) -> None:
    assert callable(write_counter)
    counter = write_counter(paths, 3)
    assert find_kill_counter(7, paths) == counter
    assert read_kill_count(counter) == 3
    detector = OomDetector(paths)
    detector.watch(7)
    assert not detector.was_killed(7), "those before its start were others"
    write_counter(paths, 4)
    assert detector.was_killed(7)
    assert not detector.was_killed(7), "one kill, one end"


def test_a_process_that_moved_to_a_new_cgroup_is_checked_there(paths: KernelPaths) -> None:
    in_v2(paths, 3)
    detector = OomDetector(paths)
    detector.watch(7)
    put(paths.proc / "7" / "cgroup", "0::/jobs/b\n")
    put(paths.cgroup / "jobs" / "b" / "memory.events", "oom_kill 1\n")
    assert detector.was_killed(7)


def test_without_readable_counters_no_oom_kill_is_reported(paths: KernelPaths) -> None:
    detector = OomDetector(paths)
    detector.watch(7)
    assert not detector.was_killed(7)
    put(paths.proc / "7" / "cgroup", "0::/jobs/a\n")  # no such directory: another mount, or another namespace
    assert find_kill_counter(7, paths) is None
    assert not detector.was_killed(7)
    put(paths.cgroup / "jobs" / "a" / "memory.events", "oom 1\n")  # an old kernel
    assert not detector.was_killed(7)


def test_the_kernel_log_names_the_process(paths: KernelPaths) -> None:
    (paths.proc / "self" / "ns").mkdir(parents=True)
    (paths.proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    before = "3,1,1,-;Out of memory: Killed process 7 (python) total-vm:1kB\n"
    put(paths.log, before)
    with OomDetector(paths) as detector:
        detector.watch(7)
        assert not detector.was_killed(7), "earlier lines of the log are about another process"
        with paths.log.open("a") as log:
            log.write("6,2,2,-;oom_reaper: reaped process 8\n")
            log.write("3,3,3,-;Memory cgroup out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:8kB\n")
        assert not detector.was_killed(8)
        assert detector.was_killed(7)


def test_a_new_detector_opens_nothing(paths: KernelPaths) -> None:
    descriptors = os.listdir("/proc/self/fd")
    (paths.proc / "self" / "ns").mkdir(parents=True)
    (paths.proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    put(paths.log, "")

    detector = OomDetector(paths)

    assert os.listdir("/proc/self/fd") == descriptors
    with detector:
        assert len(os.listdir("/proc/self/fd")) == len(descriptors) + 1
    assert os.listdir("/proc/self/fd") == descriptors


def test_the_detector_works_for_this_process_on_this_machine() -> None:
    with OomDetector() as detector:
        detector.watch(os.getpid())
        assert not detector.was_killed(os.getpid())
