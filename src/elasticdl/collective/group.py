"""The collectives of one round: a group is built beside any other, and dropped when a member is gone.

On the host, everything goes over the members' own connections (mesh.py). Members that have a GPU each use NCCL and
exchange its address over the mesh; the connections that NCCL itself opens are neither authenticated nor encrypted.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, Self

import torch
import torch.distributed  # loads the module below

from elasticdl.collective.frames import tensor_bytes
from elasticdl.collective.mesh import Mesh
from elasticdl.errors import RoundBroken

# The classes behind torch.distributed: its stubs and public names lack what a group built by hand needs.
dist: Any = torch._C._distributed_c10d

# Liveness comes from the control plane; the collective itself never times out.
_FOREVER = timedelta(days=7)
_STORE_MESSAGE_BYTES = 256  # of the message with the address of NCCL's store


Message = tuple[int, torch.Tensor]  # member, and what is sent to it or received from it


class Work(Protocol):
    """An operation that was started."""

    def wait(self) -> object: ...


class Group:
    """Collectives among the members of one round, over their mesh. Every failure is `RoundBroken`.

    All members start operations in the same order, on tensors of the group's device.
    """

    device = torch.device("cpu")  # of its tensors; others are copied there and back

    def __init__(self, mesh: Mesh, rank: int, size: int) -> None:
        self._mesh = mesh
        self.rank = rank
        self.size = size

    @property
    def others(self) -> list[int]:
        """The other ranks, from the next one on, so that not all members begin with the same one."""
        return [(self.rank + offset) % self.size for offset in range(1, self.size)]

    # ---- started now, waited for later

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Work:
        """Send tensors and receive into others; every member must expect what the others send it, in their order."""
        return self._mesh.start(
            [(member, tensor_bytes(tensor)) for member, tensor in sends],
            [(member, tensor_bytes(tensor)) for member, tensor in receives],
        )

    def start_swap(self, outgoing: torch.Tensor, incoming: torch.Tensor) -> Work:
        """Exchange tensors between two members: `incoming` becomes the other's `outgoing`."""
        return self.start([(1 - self.rank, outgoing)], [(1 - self.rank, incoming)])

    def start_allgather(self, out: torch.Tensor, part: torch.Tensor) -> Work:
        """`out` becomes the parts of all members, one after the other."""
        parts = torch.split(out, part.numel())
        parts[self.rank].copy_(part)
        return self.start(
            [(member, part) for member in self.others], [(member, parts[member]) for member in self.others]
        )

    def wait(self, *works: Work) -> None:
        """Wait until these are done. Raises RoundBroken if a member is gone; then nothing writes to their tensors."""
        for work in works:
            work.wait()

    # ---- done when they return, with tensors on any device

    def allgather(self, out: torch.Tensor, part: torch.Tensor) -> None:
        staged = out.to(self.device)
        self.wait(self.start_allgather(staged, part.to(self.device)))
        _copy_back(staged, out)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        staged = tensor.to(self.device).contiguous()
        if self.rank == root:
            self.wait(self.start([(member, staged) for member in self.others], []))
        else:
            self.wait(self.start([], [(root, staged)]))
            _copy_back(staged, tensor)

    def check(self) -> None:
        """Raise RoundBroken if the round was dropped. A member alone has no collective that would raise it."""
        if self._mesh.failure:
            raise RoundBroken(self._mesh.failure)

    def abort(self) -> None:
        """End all operations of this group, here and at the peers. From any thread, any number of times."""
        self._mesh.abort()

    def close(self) -> None:
        """Drop the group. The peers' collectives fail, so that the peers drop theirs."""
        self._mesh.close()


class NcclGroup(Group):
    """Collectives among members that have a GPU each. They exchange the address of NCCL's store over the mesh."""

    def __init__(self, mesh: Mesh, rank: int, size: int) -> None:
        super().__init__(mesh, rank, size)
        self._lock = threading.Lock()
        self._backend: Any = None

    def open(self, address: str, timeout_s: float) -> Self:
        """Connect the members by NCCL; the first one serves the store at `address`. Raises RoundBroken."""
        try:
            store = self._open_store(address, timedelta(seconds=timeout_s))
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _FOREVER
            self._backend = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        except RuntimeError as exc:
            self._mesh.close()
            raise RoundBroken(f"NCCL: {_first_line(exc)}") from exc
        self.device = torch.device("cuda")  # from now on: the store's address travelled over the mesh
        return self

    def start_alltoall(
        self, out: torch.Tensor, out_splits: Sequence[int], into: torch.Tensor, in_splits: Sequence[int]
    ) -> Work:
        """Send `into`, divided by `in_splits`, one piece to each member; `out` gets their pieces."""
        options = dist.AllToAllOptions()
        options.timeout = _FOREVER
        return self._start(lambda backend: backend.alltoall_base(out, into, list(out_splits), list(in_splits), options))

    def start_allgather(self, out: torch.Tensor, part: torch.Tensor) -> Work:
        options = dist.AllgatherOptions()
        options.timeout = _FOREVER
        return self._start(lambda backend: backend._allgather_base(out, part, options))

    def start_allreduce(self, tensor: torch.Tensor) -> Work:
        """Sum over all members, in place."""
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM
        options.timeout = _FOREVER
        return self._start(lambda backend: backend.allreduce([tensor], options))

    def wait(self, *works: Work) -> None:
        try:
            for work in works:
                work.wait()  # this only puts the wait into the stream
        except RuntimeError as exc:
            raise RoundBroken(_first_line(exc)) from exc

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = root, 0, _FOREVER
        staged = tensor.to(self.device)
        self.wait(self._start(lambda backend: backend.broadcast([staged], options)))
        _copy_back(staged, tensor)

    def abort(self) -> None:
        super().abort()
        with self._lock:
            backend = self._backend
        if backend is not None and self.size > 1:
            backend.abort()

    def close(self) -> None:
        self.abort()
        super().close()
        with self._lock:
            backends, self._backend = [self._backend], None
        # The destructor waits for NCCL's threads, which may be stuck: so a separate thread drops the last reference.
        threading.Thread(target=backends.clear, name="nccl-destructor", daemon=True).start()

    def _open_store(self, address: str, timeout: timedelta) -> Any:
        """A store of the first member, with keys that only members know."""
        message = torch.zeros(_STORE_MESSAGE_BYTES, dtype=torch.uint8)
        store: Any = None
        if self.rank == 0:
            store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=timeout, use_libuv=True)
            text = f"{address}:{store.port}:{secrets.token_hex(32)}".encode()
            message[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        super().broadcast(message, 0)
        host, port, prefix = bytes(message.numpy()).rstrip(b"\0").decode().rsplit(":", 2)
        if store is None:
            store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
        return dist.PrefixStore(prefix, store)

    def _start(self, start: Callable[[Any], Work]) -> Work:
        self.check()
        try:
            return start(self._backend)
        except RuntimeError as exc:
            raise RoundBroken(_first_line(exc)) from exc


def _copy_back(staged: torch.Tensor, tensor: torch.Tensor) -> None:
    if staged is not tensor:
        tensor.copy_(staged)


def _first_line(exc: BaseException) -> str:
    return str(exc).splitlines()[0] if str(exc) else type(exc).__name__
