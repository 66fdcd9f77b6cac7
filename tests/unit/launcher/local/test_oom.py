"""Who the OOM killer has ended, as files of the kernel tell it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.launcher.local.oom import KernelPaths, OomDetector, find_kill_counter, read_kill_count


@pytest.fixture
def roots(tmp_path: Path) -> KernelPaths:
    """A machine without a kernel log that we may read."""
    made = KernelPaths(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "kmsg")
    (made.proc / "7").mkdir(parents=True)
    return made


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def in_v2(roots: KernelPaths, kills: int) -> Path:
    put(roots.proc / "7" / "cgroup", "0::/jobs/a\n")
    return put(roots.cgroup / "jobs" / "a" / "memory.events", f"low 0\nhigh 4\noom {kills}\noom_kill {kills}\n")


def in_v1(roots: KernelPaths, kills: int) -> Path:
    put(roots.proc / "7" / "cgroup", "5:cpu,cpuacct:/\n4:memory:/jobs/a\n0::/\n")
    return put(
        roots.cgroup / "memory" / "jobs" / "a" / "memory.oom_control",
        f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
    )


def in_root_of_v2(roots: KernelPaths, kills: int) -> Path:
    put(roots.proc / "7" / "cgroup", "0::/\n")
    return put(roots.proc / "vmstat", f"nr_free_pages 12\noom_kill {kills}\nswap_ra 0\n")


@pytest.mark.parametrize("place", [in_v2, in_v1, in_root_of_v2])
def test_a_kill_that_the_cgroup_counted_since_explains_one_end(roots: KernelPaths, place: object) -> None:
    assert callable(place)
    counter = place(roots, 3)
    assert find_kill_counter(7, roots) == counter
    assert read_kill_count(counter) == 3
    witness = OomDetector(roots)
    witness.watch(7)
    assert not witness.was_killed(7), "those before its start were others"
    place(roots, 4)
    assert witness.was_killed(7)
    assert not witness.was_killed(7), "one kill, one end"


def test_a_process_that_moved_to_a_new_cgroup_is_looked_for_there(roots: KernelPaths) -> None:
    in_v2(roots, 3)
    witness = OomDetector(roots)
    witness.watch(7)
    put(roots.proc / "7" / "cgroup", "0::/jobs/b\n")
    put(roots.cgroup / "jobs" / "b" / "memory.events", "oom_kill 1\n")
    assert witness.was_killed(7)


def test_where_nothing_can_be_read_nobody_is_accused(roots: KernelPaths) -> None:
    witness = OomDetector(roots)
    witness.watch(7)
    assert not witness.was_killed(7)
    put(roots.proc / "7" / "cgroup", "0::/jobs/a\n")  # no such directory: another mount, or another namespace
    assert find_kill_counter(7, roots) is None
    assert not witness.was_killed(7)
    put(roots.cgroup / "jobs" / "a" / "memory.events", "oom 1\n")  # an old kernel
    assert not witness.was_killed(7)


def test_the_kernel_log_names_the_process(roots: KernelPaths) -> None:
    (roots.proc / "self" / "ns").mkdir(parents=True)
    (roots.proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    before = "3,1,1,-;Out of memory: Killed process 7 (python) total-vm:1kB\n"
    put(roots.log, before)
    witness = OomDetector(roots)
    witness.watch(7)
    assert not witness.was_killed(7), "what the log said before we came was of another process"
    with roots.log.open("a") as log:
        log.write("6,2,2,-;oom_reaper: reaped process 8\n")
        log.write("3,3,3,-;Memory cgroup out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:8kB\n")
    assert not witness.was_killed(8)
    assert witness.was_killed(7)
    witness.close()


def test_this_machine_answers_for_this_process() -> None:
    witness = OomDetector()
    witness.watch(os.getpid())
    assert not witness.was_killed(os.getpid())
    witness.close()
