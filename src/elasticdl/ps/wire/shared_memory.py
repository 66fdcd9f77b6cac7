"""Memory shared by a worker and a ps on the same machine: rows are written there once and never sent.

The worker creates one memory for each ps and divides it into buffers: ids, then rows. A request names the offsets of
its buffers; the ps reads ids and gradients from them and writes the requested rows into them. The memory is anonymous
(a memfd): nothing is left behind when a process ends, and it cannot shrink while the ps reads it.

A ps finds it by the id of the worker's process and the name of the memory, 64 random bits. If the two cannot see each
other's processes the ps does not find it, and all arrays are sent over the socket.
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
_BYTES = 1 << 34  # of addresses; a page is allocated when it is first used
_CACHE_LINE_BYTES = 64


class SharedBuffer(NamedTuple):
    """Ids and rows in shared memory. The buffer is free again when the last view of its arrays is gone."""

    offset: int
    ids: Ids
    rows: Floats


class SharedMemoryHandle(NamedTuple):
    """Identifies a shared memory to a ps."""

    name: int
    pid: int
    fd: int

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Raises ValueError if the text is not a handle."""
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

    def __init__(self, handle: SharedMemoryHandle, mapping: mmap.mmap) -> None:
        self.handle = handle
        self._map = mapping
        self._size = len(mapping)
        self._end = _CACHE_LINE_BYTES  # no buffer begins at 0
        self._free: dict[int, list[int]] = {}  # offsets by size

    @classmethod
    def create(cls, size: int = _BYTES) -> Self:
        """Creates and maps a memory. Raises OSError or AttributeError if this machine does not support it."""
        name = secrets.randbits(64)
        fd = os.memfd_create(_label(name), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(SharedMemoryHandle(name, os.getpid(), fd), mmap.mmap(fd, size))
        except OSError:
            os.close(fd)
            raise

    @classmethod
    def create_if_supported(cls) -> Self | None:
        """Returns None if this machine does not support it."""
        try:
            return cls.create()
        except (OSError, AttributeError):
            return None

    def close(self) -> None:
        """Allocates no more buffers; the memory is freed with the last array in it."""
        os.close(self.handle.fd)

    def allocate(self, ids: Ids, rows: Floats, columns: int) -> SharedBuffer | None:
        """Allocates a buffer for these ids and rows. None: they are too small to be worth it, or the memory is full."""
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
        # All views keep this object alive; NumPy does not keep intermediate arrays alive.
        block: Any = (ctypes.c_char * size).from_buffer(self._map, offset)
        weakref.finalize(block, free.append, offset).atexit = False
        buffer = SharedBuffer(offset, *_arrays(block, 0, len(ids), len(ids), columns))
        buffer.ids[:] = ids
        return buffer


class SharedMemoryView:
    """A ps's side of a worker's memory."""

    def __init__(self, handle: SharedMemoryHandle, mapping: mmap.mmap) -> None:
        self._handle = handle
        self._map = mapping

    @classmethod
    def open(cls, handle: SharedMemoryHandle) -> Self:
        """Maps the memory. Raises SharedMemoryNotFound if it cannot be opened here, or is not such a memory."""
        path = f"/proc/{handle.pid}/fd/{handle.fd}"
        if not _is_memory(path, handle.name):  # do not open it: it may be a device or a pipe
            raise SharedMemoryNotFound(handle.name)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as exc:
            raise SharedMemoryNotFound(handle.name) from exc
        try:
            is_sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            if not is_sealed or not _is_memory(f"/proc/self/fd/{fd}", handle.name):
                raise SharedMemoryNotFound(handle.name)
            return cls(handle, mmap.mmap(fd, 0))
        except (OSError, ValueError) as exc:
            raise SharedMemoryNotFound(handle.name) from exc
        finally:
            os.close(fd)

    @property
    def is_closed(self) -> bool:
        """Whether the worker has closed it, or has ended."""
        return not _is_memory(f"/proc/{self._handle.pid}/fd/{self._handle.fd}", self._handle.name)

    def arrays(self, offset: int, ids: int, rows: int, columns: int) -> tuple[Ids, Floats]:
        """Returns the ids and rows at an offset. Raises ValueError if they are not within the memory."""
        end = offset + _rows_start(ids) + 4 * rows * columns
        if offset % _CACHE_LINE_BYTES or end > len(self._map):
            raise ValueError(f"expected a cache line and an end within {len(self._map)}. Received: {offset} and {end}")
        return _arrays(self._map, offset, ids, rows, columns)


class SharedMemoryViews:
    """The shared memories of workers that a ps has opened. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: dict[int, SharedMemoryView] = {}

    def open(self, handle: SharedMemoryHandle) -> None:
        """Opens a memory and closes those whose worker is gone. Raises SharedMemoryNotFound."""
        view = SharedMemoryView.open(handle)
        self.sweep()
        with self._lock:
            self._views[handle.name] = view

    def find(self, name: int) -> SharedMemoryView:
        """Returns an opened memory. Raises SharedMemoryNotFound."""
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


def _is_memory(path: str, name: int) -> bool:
    """Whether `path` is a link to the shared memory of this name."""
    try:
        return os.readlink(path) == f"/memfd:{_label(name)} (deleted)"
    except OSError:
        return False


def _arrays(memory: Any, offset: int, ids: int, rows: int, columns: int) -> tuple[Ids, Floats]:
    id_array = np.frombuffer(memory, np.int64, ids, offset)
    return id_array, np.frombuffer(memory, np.float32, rows * columns, offset + _rows_start(ids)).reshape(rows, columns)


def _rows_start(ids: int) -> int:
    return -(-8 * ids // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
