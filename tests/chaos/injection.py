"""Injects faults into a running job, from outside."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from elasticdl.checkpoint import manifest
from elasticdl.errors import ElasticDLError
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.watched_process import start_ticks
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from tests.chaos import network
from tests.chaos.faulty import Faulty, can_build
from tests.chaos.network import Loss, Strangers
from tests.chaos.processes import Leaks
from tests.chaos.schedule import Fault, Kind, Role
from tests.integration import trouble
from tests.integration.job import Job
from tests.integration.trouble import Trouble

MAX_WORKERS = 4
SLOTS = 1024
DATA = "data.csv"  # of a job that trains from a file
_MEMORY = Path("/sys/fs/cgroup/memory")
_OOM_BYTES = 1 << 20
_STOPPED_S, _RUN_S = 0.08, 0.02  # how a process is slowed down
_RESPONSE_S, _POLL_S = 1.0, 0.01  # for a model to do what it is asked for, and between two looks
_TROUBLES = {Kind.RAISE: Trouble.RAISE, Kind.DEADLOCK: Trouble.DEADLOCK}
_SIGNALS = {Kind.KILL: signal.SIGKILL, Kind.TERMINATE: signal.SIGTERM}


def available_kinds() -> frozenset[Kind]:
    """Returns the kinds this machine can inject: some need root, namespaces, iptables, a compiler or cgroups."""
    kinds = set(Kind)
    if not can_isolate():
        kinds -= {Kind.LOSSY, Kind.DEAF, Kind.MUTE, Kind.ENOSPC}
    elif not _runs("unshare", "--net", "iptables", "-A", "INPUT", *network.RANDOM_MATCH, "0.5", "-j", "DROP"):
        kinds -= {Kind.LOSSY, Kind.DEAF, Kind.MUTE}
    if not can_build():
        kinds -= {Kind.EIO, Kind.CLOCK}
    if not os.access(_MEMORY, os.W_OK):
        kinds -= {Kind.OOM}
    return frozenset(kinds)


def can_isolate() -> bool:
    """Whether a job can have its own network and mounts."""
    return os.geteuid() == 0 and _runs("unshare", "--net", "--mount", "true")


def _runs(*argv: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    return False


class ActiveFault(Protocol):
    """A fault that lasts: `tick` is called repeatedly until its time is over, then `end`."""

    def tick(self, now: float) -> None: ...
    def end(self) -> None: ...


class UntilEnd:
    """A fault that only has to be ended."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def end(self) -> None:
        self._end()

    def tick(self, now: float) -> None:
        return


class StoppedProcess:
    """A process that is stopped all the time (frozen) or most of it (slow)."""

    def __init__(self, pid: int, *, is_slow: bool, now: float) -> None:
        self._pid, self._is_slow = pid, is_slow
        self._toggle_at, self._is_stopped = now + _STOPPED_S, True
        os.kill(pid, signal.SIGSTOP)

    def tick(self, now: float) -> None:
        if self._is_slow and now >= self._toggle_at:
            self._is_stopped = not self._is_stopped
            self._signal(signal.SIGSTOP if self._is_stopped else signal.SIGCONT)
            self._toggle_at = now + (_STOPPED_S if self._is_stopped else _RUN_S)

    def end(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


class DescriptorLimit:
    """Limits the descriptors of a process to those it has."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            open_now = len(os.listdir(f"/proc/{pid}/fd"))
            self._before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(open_now, self._before[0]), self._before[1]))
        except (FileNotFoundError, ProcessLookupError) as exc:
            raise NotApplicable("the process has ended") from exc

    def tick(self, now: float) -> None:
        return

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self._before)


class PacketLoss:
    def __init__(self, loss: Loss, now: float) -> None:
        self._loss, self._refresh_at = loss, now
        self.tick(now)

    def tick(self, now: float) -> None:
        if now >= self._refresh_at:
            self._loss.refresh()
            self._refresh_at = now + 0.3

    def end(self) -> None:
        self._loss.end()


class StrangerVisits:
    """Unknown clients at the ports of a process."""

    def __init__(self, pid: int) -> None:
        self._strangers = Strangers(pid)
        self._strangers.tick()
        if not self._strangers.count:
            raise NotApplicable("it has no listening port")

    def tick(self, now: float) -> None:
        self._strangers.tick()

    def end(self) -> None:
        self._strangers.end()


class NotApplicable(Exception):
    """The fault has no target now, or nothing is promised about it. It is not counted."""


class FaultInjector:
    def __init__(self, job: Job, disk: Path, faulty: Faulty | None, leaks: Leaks) -> None:
        self._job, self._leaks = job, leaks
        self._disk = disk  # the job's own file system
        self._faulty = faulty
        self._active: list[tuple[float, Fault, ActiveFault]] = []
        self._damaged: set[int] = set()  # inodes: checkpoints of ps share files

    def inject(self, fault: Fault, now: float) -> str:
        """Injects a fault. Returns what was done. Raises NotApplicable."""
        if fault.role is Role.PS:
            self._check_backups()
        try:
            return self._inject(fault, now)
        except ProcessLookupError as exc:
            raise NotApplicable("the process has ended") from exc

    def tick(self, now: float) -> None:
        for entry in list(self._active):
            until, _, active = entry
            if now < until:
                active.tick(now)
            else:
                self._active.remove(entry)
                active.end()

    def end(self) -> None:
        """Ends all active faults."""
        self.tick(float("inf"))

    def _inject(self, fault: Fault, now: float) -> str:
        match fault.kind:
            case Kind.KILL | Kind.TERMINATE:
                number = _SIGNALS[fault.kind]
                targets = list(self._living_replicas().items()) if fault.role is Role.WORKERS else [self._target(fault)]
                for _, pid in targets:
                    os.kill(pid, number)
                return f"{number.name} {' '.join(name for name, _ in targets)}"
            case Kind.SCALE:
                return self._scale(1 + int(fault.strength * MAX_WORKERS))
            case Kind.FLIP_CHECKPOINT:
                return self._flip_checkpoint(fault)
            case Kind.FLIP_JOURNAL:
                return self._flip_journal(fault)
            case Kind.ENOSPC:
                return self._start(fault, now, self._fill_disk(), "disk full")
            case Kind.CLOCK:
                return self._move_clock(fault, now)
            case Kind.EIO:
                name, pid = self._target(fault)
                times = 1 + int(4 * fault.strength)
                self._faulty_library().fail_files(pid, times)
                return f"{times} times EIO {name}"
            case Kind.FREEZE | Kind.SLOW:
                name, pid = self._target(fault)
                frozen = StoppedProcess(pid, is_slow=fault.kind is Kind.SLOW, now=now)
                return self._start(fault, now, frozen, f"{fault.kind} {name}")
            case Kind.LOSSY | Kind.DEAF | Kind.MUTE:
                name, pid = self._target(fault)
                is_lossy = fault.kind is Kind.LOSSY
                loss = Loss(
                    pid,
                    inward=fault.kind is not Kind.MUTE,
                    outward=fault.kind is not Kind.DEAF,
                    probability=0.02 + 0.4 * fault.strength if is_lossy else 1.0,
                )
                return self._start(fault, now, PacketLoss(loss, now), f"{fault.kind} {name}")
            case Kind.EMFILE:
                name, pid = self._target(fault)
                if any(isinstance(active, DescriptorLimit) and active.pid == pid for _, _, active in self._active):
                    raise NotApplicable("its descriptors are limited already")
                return self._start(fault, now, DescriptorLimit(pid), f"EMFILE {name}")
            case Kind.OOM:
                name, pid = self._target(fault)
                return self._start(fault, now, _limit_memory(pid), f"OOM {name}")
            case Kind.STRANGERS:
                name, pid = self._target(fault)
                visits = StrangerVisits(pid)
                self._leaks.pause_until(pid, now + fault.duration_s)
                return self._start(fault, now, visits, f"strangers {name}")
            case Kind.RAISE | Kind.DEADLOCK:
                name, pid = self._target(fault)
                self._disturb_model(pid, _TROUBLES[fault.kind])
                return f"{fault.kind} {name}"
            case Kind.DATA:
                return self._disturb_data(fault, now)

    def _start(self, fault: Fault, now: float, active: ActiveFault, description: str) -> str:
        self._active.append((now + fault.duration_s, fault, active))
        return f"{description} for {fault.duration_s:.1f} s"

    # ---- targets

    def _record(self) -> LauncherRecord:
        if (record := LauncherRecord.load(self._job.directory.launcher)) is None:
            raise NotApplicable("there is no launcher yet")
        return record

    def _living_replicas(self, prefix: str = "worker-") -> dict[str, int]:
        replicas = self._record().replicas.items()
        return {
            name: process.pid
            for name, process in sorted(replicas)
            if name.startswith(prefix) and start_ticks(process.pid) == process.start_ticks
        }

    def _target(self, fault: Fault) -> tuple[str, int]:
        record = self._record()
        if fault.role in (Role.WORKER, Role.PS):
            living = list(self._living_replicas("worker-" if fault.role is Role.WORKER else "ps-").items())
        else:
            running = record.master if fault.role is Role.MASTER else record.launcher
            living = [(fault.role, running.pid)] if running and start_ticks(running.pid) == running.start_ticks else []
        if not living:
            raise NotApplicable(f"no {fault.role} lives")
        return living[int(fault.target * len(living))]

    def _check_backups(self) -> None:
        """A ps is hit only while its rows have a backup: losing both is a matter of checkpoints."""
        if any(fault.role is Role.PS for _, fault, _ in self._active):
            raise NotApplicable("another ps is hit")
        try:
            with MasterClient.connect(self._job.directory, timeout_s=2.0) as client:
                status = client.status()
        except (ElasticDLError, OSError) as exc:
            raise NotApplicable("the state of the backups is unknown") from exc
        if not has_backups(status):
            raise NotApplicable("backups are incomplete")

    # ---- faults

    def _disturb_model(self, pid: int, kind: Trouble) -> None:
        """Waits until it has happened: a worker that does not train now has no model that could fail."""
        request = trouble.request_trouble(self._job.trouble, pid, kind)
        deadline = time.monotonic() + _RESPONSE_S
        while request.exists():
            if time.monotonic() > deadline:
                request.unlink(missing_ok=True)
                raise NotApplicable("it does not train now")
            self.tick(time.monotonic())
            time.sleep(_POLL_S)

    def _disturb_data(self, fault: Fault, now: float) -> str:
        data, away = self._disk / DATA, self._disk / f"{DATA}-away"
        if away.exists():
            raise NotApplicable("it is moved away already")
        if fault.target < 0.5:
            data.touch()
            return "training data touched"
        data.rename(away)
        return self._start(fault, now, UntilEnd(lambda: away.rename(data)), "training data away")

    def _scale(self, workers: int) -> str:
        try:
            with MasterClient.connect(self._job.directory, timeout_s=2.0) as client:
                client.scale(workers)
        except (ElasticDLError, OSError) as exc:
            raise NotApplicable("the master does not answer") from exc
        return f"scale to {workers}"

    def _faulty_library(self) -> Faulty:
        assert self._faulty is not None, "the schedule has only kinds that can be made"
        return self._faulty

    def _move_clock(self, fault: Fault, now: float) -> str:
        by_s = 2.0 * 43_200.0**fault.strength * (1 if fault.target < 0.5 else -1)  # 2 s to a day
        name, pid = ("all processes", 0) if fault.role is Role.JOB else self._target(fault)
        library = self._faulty_library()
        library.move_clock(pid, by_s)
        return self._start(fault, now, UntilEnd(lambda: library.move_clock(pid, 0.0)), f"clock {by_s:+.0f} s {name}")

    def _fill_disk(self) -> ActiveFault:
        path = self._disk / "filling"
        if path.exists():
            raise NotApplicable("the disk is full already")
        with path.open("wb") as file:
            while (room := os.statvfs(self._disk)).f_bavail:
                with contextlib.suppress(OSError):  # the job wrote something in between
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, room.f_bavail * room.f_frsize)
        return UntilEnd(path.unlink)

    def _flip_checkpoint(self, fault: Fault) -> str:
        """Damages the newest intact checkpoint while an older one is intact: nothing is promised about losing all."""
        intact = []
        try:
            for path in manifest.list_checkpoints(self._job.directory.root / "checkpoints"):
                assert isinstance(path, Path)
                files = {file: file.stat().st_ino for file in path.rglob("*") if file.is_file() and file.stat().st_size}
                if path / manifest.MANIFEST_FILE in files and self._damaged.isdisjoint(files.values()):
                    intact.append((path, files))
            if len(intact) < 2:
                raise NotApplicable("there are no two intact checkpoints")
            newest, files = intact[0]
            damaged = sorted(files)[int(fault.target * len(files))]
            _flip_bit(damaged, fault.target)
        except OSError as exc:
            raise NotApplicable("it was pruned") from exc
        self._damaged.add(files[damaged])
        description = f"bit flip {newest.name}/{damaged.name}"
        if fault.strength > 0.5:  # so that it is read
            for pid in self._living_replicas().values():
                os.kill(pid, signal.SIGKILL)
            description += ", SIGKILL all workers"
        return description

    def _flip_journal(self, fault: Fault) -> str:
        record = self._record()
        journal = self._job.directory.journal
        if record.master is None or not journal.exists() or not journal.stat().st_size:
            raise NotApplicable("there is no journal")
        os.kill(record.master.pid, signal.SIGSTOP)  # it must not compact the journal now
        _flip_bit(journal, fault.target)
        os.kill(record.master.pid, signal.SIGKILL)
        return "bit flip in the journal, SIGKILL master"


def has_backups(status: pb.JobStatus) -> bool:
    """Whether every ps that holds slots has a backup, and no slots move."""
    holding = [ps for ps in status.ps if ps.slots]
    serving = [ps for ps in status.ps if ps.state == "serving"]
    return (
        sum(ps.slots for ps in holding) == SLOTS
        and len(serving) == status.desired_ps == len(holding)
        and all(ps.backup and ps.state == "serving" for ps in holding)
        and max(ps.slots for ps in holding) - min(ps.slots for ps in holding) <= 1
    )


def _flip_bit(path: Path, fraction: float) -> None:
    with path.open("r+b") as file:
        bits = 8 * path.stat().st_size
        offset, bit = divmod(int(fraction * bits), 8)
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def _limit_memory(pid: int) -> ActiveFault:
    """Moves the process into a cgroup without memory: the kernel's OOM killer ends it with its next page."""
    group = _MEMORY / f"elasticdl-chaos-{pid}"
    before = next(
        line.split(":", 2)[2].strip()
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        if ":memory:" in line
    )
    group.mkdir(exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(str(_OOM_BYTES))
    (group / "cgroup.procs").write_text(str(pid))

    def restore() -> None:
        with contextlib.suppress(OSError):
            (_MEMORY / before.lstrip("/") / "cgroup.procs").write_text(str(pid))
        with contextlib.suppress(OSError):
            group.rmdir()

    return UntilEnd(restore)
