"""The context of a worker process before it has a model: its connection to the master, its rounds and its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from elasticdl.collective.group import Group, NcclGroup
from elasticdl.collective.mesh import EarlyConnections, RoundMember, connect_mesh
from elasticdl.collective.peers import ConnectionPurpose, PeerListener
from elasticdl.data import availability
from elasticdl.spec import JobSpec, is_loopback
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import WorkerEnv
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.rounds.donor import StateDonor
from elasticdl.worker.rounds.membership import RoundMembership


@dataclass(frozen=True)
class WorkerContext:
    """The identity and the job of a worker, and its connections to the master and to its peers."""

    env: WorkerEnv
    spec: JobSpec
    master: MasterConnection
    rounds: RoundMembership
    donor: StateDonor
    listener: PeerListener
    early_connections: EarlyConnections

    @classmethod
    def open(cls, env: WorkerEnv, spec: JobSpec) -> WorkerContext:
        """Connect to the master and listen for peers."""
        device, timeout_s = choose_device(spec, env), spec.timing.round_timeout_s
        early_connections, donor = EarlyConnections(timeout_s), StateDonor(spec.timing.state_transfer_timeout_s)

        def build_group(round_id: int, rank: int, peers: Sequence[RoundMember]) -> Group:
            mesh = connect_mesh(round_id, rank, peers, master.credentials, early_connections, timeout_s)
            if uses_nccl(device, spec, env.address):
                return NcclGroup(mesh, rank, len(peers)).open(env.address, timeout_s)
            return Group(mesh, rank, len(peers))

        rounds = RoundMembership(env.worker, build_group)
        token = JobDirectory(env.job_directory).load_token()
        master = MasterConnection(env, spec, token, rounds, torch.backends.cpu.get_cpu_capability())
        handlers = {
            ConnectionPurpose.STATE: lambda greeting, connection: donor.start_transfer(greeting.worker, connection),
            ConnectionPurpose.ROUND: early_connections.add,
        }
        listener = PeerListener(env.address, master.credentials, handlers).start()
        availability.set_wait_listener(
            lambda is_waiting, reason: master.report_notice("data-waits" if is_waiting else "data-returned", reason)
        )
        master.open(listener.address)
        return cls(env, spec, master, rounds, donor, listener, early_connections)

    def close(self, reason: str) -> None:
        self.donor.close(self.spec.timing.round_timeout_s)
        self.listener.close()
        self.early_connections.close()
        self.rounds.close()
        self.master.close(reason)


def choose_device(spec: JobSpec, env: WorkerEnv) -> torch.device:
    """The device of this worker. Workers take the GPUs in turn; if there are more workers, they share them."""
    kind = spec.workers.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        return torch.device("cpu")
    number = int("".join(filter(str.isdigit, env.worker)) or 0)
    return torch.device("cuda", number % max(1, torch.cuda.device_count()))


def uses_nccl(device: torch.device, spec: JobSpec, address: str) -> bool:
    """Whether gradients travel by NCCL, which needs a GPU of its own for each worker.

    If workers share GPUs, gradients travel through the host. In a job with TLS they do so between machines, too,
    because NCCL cannot encrypt, unless the job allows NCCL without encryption.
    """
    if device.type != "cuda" or torch.cuda.device_count() < spec.workers.max:
        return False
    return not spec.security.is_on or spec.security.plain_nccl or is_loopback(address)
