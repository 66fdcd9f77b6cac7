"""Memory shared by a worker and a ps on the same machine: rows are written there once and never sent.

The worker creates one memory for each ps and divides it into buffers: ids, then rows. A request says where its buffers
are; the ps reads ids and gradients from them and writes the requested rows into them. The memory is anonymous (a
memfd): nothing is left behind however a process ends, and it cannot shrink under its reader.

A ps finds it by the number of the worker's process and the name of the memory, 64 bits by chance. Where the two do not
see each other's processes it finds nothing, and everything goes over the socket.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import secrets
import threading
import weakref
from typing import Any, NamedTuple, Self

import numpy as np

from elasticdl.ps.wire.messages import Floats, Ids, SharedMemoryNotFound

MIN_BUFFER_BYTES = 1 << 14  # below this a shared buffer costs more than the socket
_BYTES = 1 << 34  # of addresses; pages come with their first use
_CACHE_LINE_BYTES = 64


class SharedBuffer(NamedTuple):
    """Ids and rows in shared memory. The buffer is free again when the last view of its arrays is gone."""

    offset: int
    ids: Ids
    rows: Floats


class SharedMemoryHandle(NamedTuple):
    """Where a ps finds a shared memory."""

    name: int
    pid: int
    fd: int

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Raises ValueError where the text is no handle."""
        fields = json.loads(text)
        if (
            not isinstance(fields, list)
            or len(fields) != 3
            or not all(type(field) is int and field >= 0 for field in fields)
        ):
            raise ValueError("expected the name of a memory, its process and its file")
        return cls(*fields)


class SharedMemory:
    """A worker's side of a shared memory. For one thread, but any thread may drop arrays."""

    def __init__(self, size: int = _BYTES) -> None:
        """Raises OSError or AttributeError where this machine has no such memory."""
        name = secrets.randbits(64)
        self._fd = os.memfd_create(_label(name), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, size)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._map = mmap.mmap(self._fd, size)
        except OSError:
            os.close(self._fd)
            raise
        self.handle = SharedMemoryHandle(name, os.getpid(), self._fd)
        self._size = size
        self._end = _CACHE_LINE_BYTES  # nothing lies at 0
        self._free: dict[int, list[int]] = {}  # offsets by size

    def close(self) -> None:
        """Allocates no more buffers; the memory is freed with the last array in it."""
        os.close(self._fd)

    @classmethod
    def create_if_supported(cls) -> Self | None:
        """Returns None where this machine has no memfd."""
        try:
            return cls()
        except (OSError, AttributeError):
            return None

    def allocate(self, ids: Ids, rows: Floats, columns: int) -> SharedBuffer | None:
        """Allocates a buffer for these ids and rows. None: too small to be worth it, or no space is left."""
        if len(ids) * (8 + 4 * columns) < MIN_BUFFER_BYTES or not (buffer := self._take(ids, columns)):
            return None
        if rows.size:
            buffer.rows[:] = rows
        return buffer

    def _take(self, ids: Ids, columns: int) -> SharedBuffer | None:
        start = _rows_start(len(ids))
        size = 1 << (start + 4 * len(ids) * columns - 1).bit_length()
        free = self._free.setdefault(size, [])
        if free:
            offset = free.pop()
        elif self._end + size <= self._size:
            offset = self._end
            self._end += size
        else:
            return None
        # The object that all views keep alive: of arrays, NumPy lets go of those in between.
        block: Any = (ctypes.c_char * size).from_buffer(self._map, offset)
        weakref.finalize(block, free.append, offset).atexit = False
        buffer = SharedBuffer(offset, *_arrays(block, 0, len(ids), len(ids), columns))
        buffer.ids[:] = ids
        return buffer


class SharedMemoryView:
    """A ps's side of a worker's memory."""

    def __init__(self, offer: SharedMemoryHandle) -> None:
        """Raises SharedMemoryNotFound where it cannot be opened here, or is not what it should be."""
        self._offer = offer
        if self.is_closed:  # not opened at all: it may be a device, or a pipe
            raise SharedMemoryNotFound(offer.name)
        try:
            fd = os.open(f"/proc/{offer.pid}/fd/{offer.fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as exc:
            raise SharedMemoryNotFound(offer.name) from exc
        try:
            if (
                not self._is_named(f"/proc/self/fd/{fd}")
                or not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            ):
                raise SharedMemoryNotFound(offer.name)
            self._map = mmap.mmap(fd, 0)
        except (OSError, ValueError) as exc:
            raise SharedMemoryNotFound(offer.name) from exc
        finally:
            os.close(fd)

    @property
    def is_closed(self) -> bool:
        """Whether the worker has closed it, or has ended."""
        return not self._is_named(f"/proc/{self._offer.pid}/fd/{self._offer.fd}")

    def arrays(self, offset: int, ids: int, rows: int, columns: int) -> tuple[Ids, Floats]:
        """Raises ValueError where the arrays are not within the memory."""
        end = offset + _rows_start(ids) + 4 * rows * columns
        if offset % _CACHE_LINE_BYTES or end > len(self._map):
            raise ValueError(f"expected a cache line and an end within {len(self._map)}. Received: {offset} and {end}")
        return _arrays(self._map, offset, ids, rows, columns)

    def _is_named(self, path: str) -> bool:
        try:
            return os.readlink(path) == f"/memfd:{_label(self._offer.name)} (deleted)"
        except OSError:
            return False


class SharedMemoryViews:
    """The shared memories of workers that a ps has opened. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: dict[int, SharedMemoryView] = {}

    def open(self, offer: SharedMemoryHandle) -> None:
        """Raises SharedMemoryNotFound."""
        view = SharedMemoryView(offer)
        self.sweep()
        with self._lock:
            self._views[offer.name] = view

    def find(self, name: int) -> SharedMemoryView:
        """Raises SharedMemoryNotFound."""
        view = self._views.get(name)
        if view is None:
            raise SharedMemoryNotFound(name)
        return view

    def sweep(self) -> int:
        """Closes memories whose worker is gone; returns how many are left."""
        with self._lock:
            self._views = {name: view for name, view in self._views.items() if not view.is_closed}
            return len(self._views)


def _label(name: int) -> str:
    return f"elasticdl-{name:016x}"


def _arrays(memory: Any, offset: int, ids: int, rows: int, columns: int) -> tuple[Ids, Floats]:
    id_array = np.frombuffer(memory, np.int64, ids, offset)
    return id_array, np.frombuffer(memory, np.float32, rows * columns, offset + _rows_start(ids)).reshape(rows, columns)


def _rows_start(ids: int) -> int:
    return -(-8 * ids // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
