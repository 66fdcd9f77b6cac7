"""One process group for one round: built, used, and dropped at once when a member is gone.

The group is built directly, beside any other, so that the next round can be prepared
while steps go on. A blocked collective cannot be woken through torch: what wakes it is
shutting down the group's connected sockets. We hold duplicates of them, so this is safe
from any thread and at any time.

Gloo does not always wake what a lost connection leaves behind: not a transfer that is half received or half sent,
and sometimes its own threads wait for each other. So nobody here waits for gloo alone: waiters look up
whether the round was dropped, and what is left of a group is taken down by a thread that nobody waits for.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed  # loads the module below

from elasticdl.errors import RoundBroken

# The classes behind torch.distributed: its stubs and public names leave out what a group built by hand needs.
dist: Any = torch._C._distributed_c10d
Work = Any

# Liveness comes from the control plane; the collective itself never times out.
_FOREVER = timedelta(days=7)
# How often a waiter looks whether its round was dropped, should gloo not tell it.
_LOOK_EVERY = timedelta(seconds=0.05)


def open_store(address: str) -> tuple[Any, str]:
    """The meeting place a worker offers for rounds it leads: a store on `address`, and where it listens."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((address, 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=True
    )
    return store, f"{address}:{port}"


class Group:
    """Collectives among the members of one round. Every failure is `RoundBroken`."""

    def __init__(self, backend: Any, rank: int, size: int, sockets: list[socket.socket], device: torch.device) -> None:
        self._backend = backend
        self.rank = rank
        self.size = size
        self._sockets = sockets
        self.device = device  # where its tensors live; others are staged there and back
        self._is_gloo = device.type == "cpu"
        self._lock = threading.Lock()
        self._broken = threading.Event()

    @classmethod
    def build(
        cls, round_id: int, rank: int, size: int, store_address: str, address: str, *, nccl: bool, timeout_s: float
    ) -> Group:
        """Meet the other members at `store_address`. Blocks until all are there or `timeout_s` is over."""
        host, port = store_address.rsplit(":", 1)
        timeout = timedelta(seconds=timeout_s)
        try:
            client = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
            store = dist.PrefixStore(f"round-{round_id}", client)
            if nccl:
                return cls(_nccl(store, rank, size), rank, size, [], torch.device("cuda"))
            gloo_device, own = _create_device(address)
            store.set(f"ports-{rank}", ",".join(map(str, own)))
            options = dist.ProcessGroupGloo._Options()
            options._devices = [gloo_device]
            options._timeout = timeout
            options._threads = 2
            backend = dist.ProcessGroupGloo(store, rank, size, options)
            backend._set_default_timeout(_FOREVER)
            peers = {int(p) for r in range(size) if r != rank for p in store.get(f"ports-{r}").decode().split(",") if p}
            return cls(backend, rank, size, _connected_sockets(own, peers), torch.device("cpu"))
        except RuntimeError as exc:
            raise RoundBroken(f"round {round_id} could not be formed: {_first_line(exc)}") from exc

    # ---- begun now, waited for later; tensors on the group's device; all members begin them in the same order

    def start_allreduce(self, tensor: torch.Tensor) -> Work:
        """Sum over all members, in place."""
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM
        options.timeout = _FOREVER
        return self._start(lambda backend: backend.allreduce([tensor], options))

    def start_swap(self, outgoing: torch.Tensor, incoming: torch.Tensor) -> Work:
        """Between two members: `incoming` becomes the other's `outgoing`."""
        splits = [0 if member == self.rank else outgoing.numel() for member in range(self.size)]
        return self.start_alltoall(incoming, splits, outgoing, splits)

    def start_alltoall(
        self, out: torch.Tensor, out_splits: list[int], into: torch.Tensor, in_splits: list[int]
    ) -> Work:
        """Send `into`, cut by `in_splits`, one piece to each member; `out` gets theirs."""
        options = dist.AllToAllOptions()
        options.timeout = _FOREVER
        return self._start(lambda backend: backend.alltoall_base(out, into, out_splits, in_splits, options))

    def start_allgather(self, out: torch.Tensor, part: torch.Tensor) -> Work:
        """`out` becomes the parts of all members, one after the other."""
        options = dist.AllgatherOptions()
        options.timeout = _FOREVER
        return self._start(lambda backend: backend._allgather_base(out, part, options))

    def wait(self, *works: Work) -> None:
        """Until these are done. Raises RoundBroken where a member is gone.

        Then they may go on for a while: their tensors are not to be written to again.
        """
        for work in works:
            while not self._is_done(work):
                self.check()

    def _is_done(self, work: Work) -> bool:
        if self._is_gloo:
            with contextlib.suppress(RuntimeError):  # not done yet, or failed, which the next lines tell apart
                work.wait(_LOOK_EVERY)
            if not work.is_completed():
                return False
        try:
            work.wait()  # with NCCL this only puts the wait into the stream
        except RuntimeError as exc:
            raise RoundBroken(_first_line(exc)) from exc
        return True

    # ---- done when they return; tensors anywhere

    def allgather(self, out: torch.Tensor, part: torch.Tensor) -> None:
        staged = out.to(self.device)
        self.wait(self.start_allgather(staged, part.to(self.device)))
        _unstage(staged, out)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        options.timeout = _FOREVER
        staged = tensor.to(self.device)
        self.wait(self._start(lambda backend: backend.broadcast([staged], options)))
        _unstage(staged, tensor)

    def check(self) -> None:
        """Raise RoundBroken where the round was dropped; a member alone has no collective that would tell."""
        if self._broken.is_set():
            raise RoundBroken("the round was dropped")

    def abort(self) -> None:
        """Wake whoever is blocked in this group, here and at the peers. Any thread, any time, any number of times."""
        self._broken.set()
        with self._lock:
            for held in self._sockets:
                with contextlib.suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)
            backend = None if self._is_gloo else self._backend
        if backend is not None and self.size > 1:
            backend.abort()

    def close(self) -> None:
        """Drop the group; the peers' collectives fail, so that they drop theirs."""
        self.abort()
        with self._lock:
            for held in self._sockets:
                held.close()
            self._sockets = []
            left = [self._backend]
            self._backend = None
        # The destructor waits for gloo's threads, which may be stuck: the last reference goes where nobody waits.
        threading.Thread(target=left.clear, name="elasticdl-take-down", daemon=True).start()

    def _start(self, start: Callable[[Any], Work]) -> Work:
        self.check()
        try:
            return start(self._backend)
        except RuntimeError as exc:
            raise RoundBroken(_first_line(exc)) from exc


_devices = threading.Lock()


def _create_device(address: str) -> tuple[Any, set[int]]:
    """A gloo device on `address`, and the ports it listens on."""
    with _devices:  # two rounds may be prepared at once; each must know its own ports
        before = _listening_ports()
        device = dist.ProcessGroupGloo.create_device(hostname=address)
        return device, _listening_ports() - before


def _nccl(store: Any, rank: int, size: int) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = _FOREVER
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _unstage(staged: torch.Tensor, tensor: torch.Tensor) -> None:
    if staged is not tensor:
        tensor.copy_(staged)


def _first_line(exc: BaseException) -> str:
    return str(exc).splitlines()[0] if str(exc) else type(exc).__name__


def _tcp_sockets() -> list[socket.socket]:
    """Duplicates of every TCP socket of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            held = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed meanwhile
        if held.family in (socket.AF_INET, socket.AF_INET6) and held.type == socket.SOCK_STREAM:
            found.append(held)
        else:
            held.close()
    return found


def _listening_ports() -> set[int]:
    ports = set()
    for held in _tcp_sockets():
        with held:
            if held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(held.getsockname()[1])
    return ports


def _connected_sockets(own_ports: set[int], peer_ports: set[int]) -> list[socket.socket]:
    """The group's connections: accepted on our device's port, or made to a peer's."""
    group = []
    for held in _tcp_sockets():
        try:
            # Asking for the peer first leaves out the listening socket: gloo aborts when that is shut down.
            is_ours = held.getpeername()[1] in peer_ports or held.getsockname()[1] in own_ports
        except OSError:  # listening, or closed by the peer already
            is_ours = False
        if is_ours:
            group.append(held)
        else:
            held.close()
    return group
