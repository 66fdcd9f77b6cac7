"""Faults that strike a running job, from outside and while it lasts."""

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

MOST_WORKERS = 4
SLOTS = 1024
DATA = "data.csv"  # of a job that trains from a file, on its disk
_MEMORY = Path("/sys/fs/cgroup/memory")
_OOM_BYTES = 1 << 20
_STOPPED_S, _RUN_S = 0.08, 0.02  # of a process that is slow
_HEED_S, _LOOK_S = 1.0, 0.01  # until a model does what it was asked for
_TROUBLES = {Kind.RAISE: Trouble.RAISE, Kind.DEADLOCK: Trouble.DEADLOCK}
_SIGNALS = {Kind.KILL: signal.SIGKILL, Kind.TERMINATE: signal.SIGTERM}


def available() -> frozenset[Kind]:
    """The kinds of faults this machine can make: some need root, namespaces, iptables, a compiler or cgroups."""
    found = set(Kind)
    if not can_isolate():
        found -= {Kind.LOSSY, Kind.DEAF, Kind.MUTE, Kind.ENOSPC}
    elif not _runs("unshare", "--net", "iptables", "-A", "INPUT", *network.LOSING, "0.5", "-j", "DROP"):
        found -= {Kind.LOSSY, Kind.DEAF, Kind.MUTE}
    if not can_build():
        found -= {Kind.EIO, Kind.CLOCK}
    if not os.access(_MEMORY, os.W_OK):
        found -= {Kind.OOM}
    return frozenset(found)


def can_isolate() -> bool:
    """Whether a job can have a network and mounts of its own."""
    return os.geteuid() == 0 and _runs("unshare", "--net", "--mount", "true")


def _runs(*argv: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    return False


class Lasting(Protocol):
    """A fault that has begun: looked at again and again until its time is over."""

    def tick(self, now: float) -> None: ...
    def end(self) -> None: ...


class Plain:
    """A fault that has nothing to do while it lasts."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def end(self) -> None:
        self._end()

    def tick(self, now: float) -> None:
        return


class Frozen:
    """A process that is stopped all the time, or most of it."""

    def __init__(self, pid: int, *, is_slow: bool, now: float) -> None:
        self._pid, self._is_slow = pid, is_slow
        self._change_at, self._is_stopped = now + _STOPPED_S, True
        os.kill(pid, signal.SIGSTOP)

    def tick(self, now: float) -> None:
        if self._is_slow and now >= self._change_at:
            self._is_stopped = not self._is_stopped
            self._signal(signal.SIGSTOP if self._is_stopped else signal.SIGCONT)
            self._change_at = now + (_STOPPED_S if self._is_stopped else _RUN_S)

    def end(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


class FewDescriptors:
    """No new descriptor: the limit is what the process has."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            open_now = len(os.listdir(f"/proc/{pid}/fd"))
            self._before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(open_now, self._before[0]), self._before[1]))
        except (FileNotFoundError, ProcessLookupError) as exc:
            raise NotDue("it was gone before") from exc

    def tick(self, now: float) -> None:
        return

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self._before)


class Lossy:
    def __init__(self, loss: Loss, now: float) -> None:
        self._loss, self._cover_at = loss, now
        self.tick(now)

    def tick(self, now: float) -> None:
        if now >= self._cover_at:
            self._loss.cover()
            self._cover_at = now + 0.3

    def end(self) -> None:
        self._loss.end()


class Besieged:
    """Strangers at the ports of a process."""

    def __init__(self, pid: int) -> None:
        self._strangers = Strangers(pid)
        self._strangers.tick()
        if not self._strangers.count:
            raise NotDue("it listens nowhere")

    def tick(self, now: float) -> None:
        self._strangers.tick()

    def end(self) -> None:
        self._strangers.end()


class NotDue(Exception):
    """There is nobody to strike, or it would break what was never promised. Does not count."""


class Striker:
    def __init__(self, job: Job, disk: Path, faulty: Faulty | None, leaks: Leaks) -> None:
        self._job, self._leaks = job, leaks
        self._disk = disk  # a file system of the job's own
        self._faulty = faulty
        self._lasting: list[tuple[float, Fault, Lasting]] = []
        self._damaged: set[int] = set()  # inodes: checkpoints of ps share files with others

    def strike(self, fault: Fault, now: float) -> str:
        """Let it happen; what exactly was done. NotDue where it cannot be."""
        if fault.role is Role.PS:
            self._check_copies()
        try:
            return self._strike(fault, now)
        except ProcessLookupError as exc:
            raise NotDue("it was gone before") from exc

    def tick(self, now: float) -> None:
        for entry in list(self._lasting):
            until, _, lasting = entry
            if now < until:
                lasting.tick(now)
            else:
                self._lasting.remove(entry)
                lasting.end()

    def end(self) -> None:
        """Nothing lasts any longer."""
        self.tick(float("inf"))

    def _strike(self, fault: Fault, now: float) -> str:
        match fault.kind:
            case Kind.KILL | Kind.TERMINATE:
                number = _SIGNALS[fault.kind]
                struck = list(self._workers().items()) if fault.role is Role.WORKERS else [self._one(fault)]
                for _, pid in struck:
                    os.kill(pid, number)
                return f"{number.name} {' '.join(name for name, _ in struck)}"
            case Kind.SCALE:
                return self._scale(1 + int(fault.strength * MOST_WORKERS))
            case Kind.FLIP_CHECKPOINT:
                return self._flip_checkpoint(fault)
            case Kind.FLIP_JOURNAL:
                return self._flip_journal(fault)
            case Kind.ENOSPC:
                return self._lasts(fault, now, self._fill(), "disk full")
            case Kind.CLOCK:
                return self._jump(fault, now)
            case Kind.EIO:
                name, pid = self._one(fault)
                times = 1 + int(4 * fault.strength)
                self._shim().fail_files(pid, times)
                return f"{times} times EIO {name}"
            case Kind.FREEZE | Kind.SLOW:
                name, pid = self._one(fault)
                frozen = Frozen(pid, is_slow=fault.kind is Kind.SLOW, now=now)
                return self._lasts(fault, now, frozen, f"{fault.kind} {name}")
            case Kind.LOSSY | Kind.DEAF | Kind.MUTE:
                name, pid = self._one(fault)
                is_lossy = fault.kind is Kind.LOSSY
                loss = Loss(
                    pid,
                    inward=fault.kind is not Kind.MUTE,
                    outward=fault.kind is not Kind.DEAF,
                    probability=0.02 + 0.4 * fault.strength if is_lossy else 1.0,
                )
                return self._lasts(fault, now, Lossy(loss, now), f"{fault.kind} {name}")
            case Kind.EMFILE:
                name, pid = self._one(fault)
                if any(isinstance(lasting, FewDescriptors) and lasting.pid == pid for _, _, lasting in self._lasting):
                    raise NotDue("its descriptors are few already")
                return self._lasts(fault, now, FewDescriptors(pid), f"EMFILE {name}")
            case Kind.OOM:
                name, pid = self._one(fault)
                return self._lasts(fault, now, _no_memory(pid), f"OOM {name}")
            case Kind.STRANGERS:
                name, pid = self._one(fault)
                besieged = Besieged(pid)
                self._leaks.besiege(pid, now + fault.lasts_s)
                return self._lasts(fault, now, besieged, f"strangers {name}")
            case Kind.RAISE | Kind.DEADLOCK:
                name, pid = self._one(fault)
                self._trouble(pid, _TROUBLES[fault.kind])
                return f"{fault.kind} {name}"
            case Kind.DATA:
                return self._disturb_data(fault, now)

    def _lasts(self, fault: Fault, now: float, lasting: Lasting, told: str) -> str:
        self._lasting.append((now + fault.lasts_s, fault, lasting))
        return f"{told} for {fault.lasts_s:.1f} s"

    # ---- who

    def _record(self) -> LauncherRecord:
        if (record := LauncherRecord.load(self._job.directory.launcher)) is None:
            raise NotDue("there is no launcher yet")
        return record

    def _workers(self, prefix: str = "worker-") -> dict[str, int]:
        replicas = self._record().replicas.items()
        return {
            name: one.pid
            for name, one in sorted(replicas)
            if name.startswith(prefix) and start_ticks(one.pid) == one.start_ticks
        }

    def _one(self, fault: Fault) -> tuple[str, int]:
        record = self._record()
        if fault.role in (Role.WORKER, Role.PS):
            living = list(self._workers("worker-" if fault.role is Role.WORKER else "ps-").items())
        else:
            running = record.master if fault.role is Role.MASTER else record.launcher
            living = [(fault.role, running.pid)] if running and start_ticks(running.pid) == running.start_ticks else []
        if not living:
            raise NotDue(f"no {fault.role} lives")
        return living[int(fault.which * len(living))]

    def _check_copies(self) -> None:
        """A ps is struck only while its rows have a second holder: losing both is another promise, of checkpoints."""
        if any(fault.role is Role.PS for _, fault, _ in self._lasting):
            raise NotDue("another ps is struck")
        try:
            with MasterClient.connect(self._job.directory, timeout_s=2.0) as client:
                status = client.status()
        except (ElasticDLError, OSError) as exc:
            raise NotDue("nobody can say whether copies are whole") from exc
        if not is_whole(status):
            raise NotDue("copies are not whole")

    # ---- what

    def _trouble(self, pid: int, what: Trouble) -> None:
        """It must have come to that: who trains nothing now has no model to fail in."""
        asked = trouble.ask(self._job.trouble, pid, what)
        deadline = time.monotonic() + _HEED_S
        while asked.exists():
            if time.monotonic() > deadline:
                asked.unlink(missing_ok=True)
                raise NotDue("it computes nothing now")
            self.tick(time.monotonic())
            time.sleep(_LOOK_S)

    def _disturb_data(self, fault: Fault, now: float) -> str:
        data, away = self._disk / DATA, self._disk / f"{DATA}-away"
        if away.exists():
            raise NotDue("it is away already")
        if fault.which < 0.5:
            data.touch()
            return "training data touched"
        data.rename(away)
        return self._lasts(fault, now, Plain(lambda: away.rename(data)), "training data away")

    def _scale(self, workers: int) -> str:
        try:
            with MasterClient.connect(self._job.directory, timeout_s=2.0) as client:
                client.scale(workers)
        except (ElasticDLError, OSError) as exc:
            raise NotDue("the master does not answer") from exc
        return f"scale to {workers}"

    def _shim(self) -> Faulty:
        assert self._faulty is not None, "the schedule has only kinds that can be made"
        return self._faulty

    def _jump(self, fault: Fault, now: float) -> str:
        by_s = 2.0 * 43_200.0**fault.strength * (1 if fault.which < 0.5 else -1)  # 2 s to a day
        name, pid = ("everybody", 0) if fault.role is Role.JOB else self._one(fault)
        shim = self._shim()
        shim.move_clock(pid, by_s)
        return self._lasts(fault, now, Plain(lambda: shim.move_clock(pid, 0.0)), f"clock {by_s:+.0f} s {name}")

    def _fill(self) -> Lasting:
        path = self._disk / "filling"
        if path.exists():
            raise NotDue("the disk is full already")
        with path.open("wb") as file:
            while (room := os.statvfs(self._disk)).f_bavail:
                with contextlib.suppress(OSError):  # the job wrote something meanwhile
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, room.f_bavail * room.f_frsize)
        return Plain(path.unlink)

    def _flip_checkpoint(self, fault: Fault) -> str:
        """The newest that is whole, while an older one is: losing all of them is no fault anybody promised to mend."""
        whole = []
        try:
            for path in manifest.list_checkpoints(self._job.directory.root / "checkpoints"):
                assert isinstance(path, Path)
                files = {one: one.stat().st_ino for one in path.rglob("*") if one.is_file() and one.stat().st_size}
                if path / manifest.MANIFEST_FILE in files and self._damaged.isdisjoint(files.values()):
                    whole.append((path, files))
            if len(whole) < 2:
                raise NotDue("there are no two whole checkpoints")
            newest, files = whole[0]
            chosen = sorted(files)[int(fault.which * len(files))]
            _flip(chosen, fault.which)
        except OSError as exc:
            raise NotDue("it was pruned") from exc
        self._damaged.add(files[chosen])
        told = f"bit flip {newest.name}/{chosen.name}"
        if fault.strength > 0.5:  # and somebody must read it
            for pid in self._workers().values():
                os.kill(pid, signal.SIGKILL)
            told += ", SIGKILL all workers"
        return told

    def _flip_journal(self, fault: Fault) -> str:
        record = self._record()
        journal = self._job.directory.journal
        if record.master is None or not journal.exists() or not journal.stat().st_size:
            raise NotDue("there is no journal")
        os.kill(record.master.pid, signal.SIGSTOP)  # else it could compact the journal meanwhile
        _flip(journal, fault.which)
        os.kill(record.master.pid, signal.SIGKILL)
        return "bit flip in the journal, SIGKILL master"


def is_whole(status: pb.JobStatus) -> bool:
    """Whether every ps that holds slots has its copies elsewhere, and no slots move."""
    holding = [one for one in status.ps if one.slots]
    serving = [one for one in status.ps if one.state == "serving"]
    return (
        sum(one.slots for one in holding) == SLOTS
        and len(serving) == status.desired_ps == len(holding)
        and all(one.backup and one.state == "serving" for one in holding)
        and max(one.slots for one in holding) - min(one.slots for one in holding) <= 1
    )


def _flip(path: Path, where: float) -> None:
    with path.open("r+b") as file:
        bits = 8 * path.stat().st_size
        place, bit = divmod(int(where * bits), 8)
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ (1 << bit)]))


def _no_memory(pid: int) -> Lasting:
    """A cgroup without memory: the kernel's OOM killer takes the process with its next page."""
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

    return Plain(restore)
