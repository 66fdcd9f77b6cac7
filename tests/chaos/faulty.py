"""Controls faulty.c: errors of files and jumps of the clock, for one process or for all of a job."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SLOTS = 32
_HEAD, _SLOT = struct.Struct("q"), struct.Struct("iiq")
_SOURCE = Path(__file__).with_name("faulty.c")


def can_build() -> bool:
    return shutil.which("cc") is not None


class Faulty:
    """Builds the library for a job with files below `root`; `environ` loads it into the job's processes."""

    def __init__(self, directory: Path, root: Path) -> None:
        library, control = directory / "faulty.so", directory / "faulty.control"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
        control.write_bytes(bytes(_HEAD.size + SLOTS * _SLOT.size))
        fd = os.open(control, os.O_RDWR)
        self._memory = mmap.mmap(fd, 0)
        os.close(fd)
        self.environ = {"LD_PRELOAD": str(library), "CHAOS_CONTROL": str(control), "CHAOS_ROOT": str(root)}

    def fail_files(self, pid: int, times: int) -> None:
        self._set(pid, times, None)

    def move_clock(self, pid: int, by_s: float) -> None:
        """Moves the clock of one process; with `pid` 0, of all processes."""
        if pid:
            self._set(pid, None, int(by_s * 1e9))
        else:
            _HEAD.pack_into(self._memory, 0, int(by_s * 1e9))

    def _set(self, pid: int, left: int | None, offset_ns: int | None) -> None:
        slots = [_SLOT.unpack_from(self._memory, _HEAD.size + n * _SLOT.size) for n in range(SLOTS)]
        own = [n for n, slot in enumerate(slots) if slot[0] == pid]
        free = [n for n, slot in enumerate(slots) if not slot[0] or not Path(f"/proc/{slot[0]}").exists()]
        if not own and not free:
            return  # all slots are in use
        index = (own or free)[0]
        before = slots[index] if own else (pid, 0, 0)
        values = (pid, before[1] if left is None else left, before[2] if offset_ns is None else offset_ns)
        _SLOT.pack_into(self._memory, _HEAD.size + index * _SLOT.size, *values)
