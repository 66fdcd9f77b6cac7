"""The training data of a job that trains by leases: shards, and for each a lane on which its pushes are numbered. Pure.

A ps takes each push once by its sender and number. The sender is the lane of a shard, the number counts its batches;
both stay with the shard until it is finished, whoever holds it, so a batch that is computed again counts once. Lanes
are used again: there are about as many as shards are leased at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.master.shards import Lease, ShardQueue
from elasticdl.spec import JobSpec
from elasticdl.spec.ids import WorkerId

SOURCE = "training"
# A worker should take several shards in a job, or the last ones would wait for the slowest.
SHARDS_PER_WORKER = 8
# And between two evaluations that training waits for: then all wait for the last one.
SHARDS_PER_WAIT = 4
_LANE_BITS = 20


@dataclass(slots=True)
class Lanes:
    """Which numbers each shard pushes under."""

    first: int  # lanes of one run begin here: those of another are never mistaken for ours
    count: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)  # (lane, its next number)
    taken: dict[int, tuple[int, int]] = field(default_factory=dict)  # shard: (lane, number of its first batch)

    def take(self, shard: int) -> tuple[int, int]:
        """The lane of a shard: the one it has, else a free one, else a new one."""
        if shard not in self.taken:
            if self.free:
                self.taken[shard] = self.free.pop()
            else:
                self.taken[shard] = (self.first + self.count, 1)
                self.count += 1
        return self.taken[shard]

    def finish(self, shard: int, batches: int) -> None:
        lane, number = self.taken.pop(shard)
        self.free.append((lane, number + batches))


@dataclass(slots=True)
class TrainingQueue:
    """Every position of the plan, in shards of whole batches."""

    shards: ShardQueue
    minibatch: int
    lanes: Lanes

    @classmethod
    def of(cls, spec: JobSpec, records: int, started_at: float) -> TrainingQueue:
        minibatch = spec.plan.minibatch_size
        fair = -(-records // (SHARDS_PER_WORKER * spec.workers.max))
        if spec.evaluation.wait and spec.evaluation.steps:
            fair = min(fair, -(-spec.evaluation.steps * minibatch // (SHARDS_PER_WAIT * spec.workers.max)))
        size = -(-min(spec.data.shard_records, fair) // minibatch) * minibatch
        return cls(ShardQueue(SOURCE, records, size), minibatch, Lanes(int(started_at) << _LANE_BITS))

    @property
    def batches_done(self) -> int:
        return -(-self.shards.done_records // self.minibatch)

    def take(self, worker: WorkerId, lease_id: int, now: float) -> Lease | None:
        lease = self.shards.take(worker, lease_id, now)
        if lease is None:
            return None
        lane, number = self.lanes.take(lease.shard)
        self.shards.leases[lease_id] = lease._replace(lane=lane, number=number)
        return self.shards.leases[lease_id]

    def finish(self, lease_id: int, worker: WorkerId) -> bool:
        """The shard is done. False for a late report, which counts nothing."""
        lease = self.shards.leases.get(lease_id)
        if lease is None or not self.shards.finish(lease_id, worker):
            return False
        self.lanes.finish(lease.shard, -(-(lease.stop - lease.start) // self.minibatch))
        return True

    def validate(self) -> None:
        """Assert that no shard is lost or doubled, and that no two push under the same lane."""
        self.shards.validate()
        away = {lease.shard for lease in self.shards.leases.values()} | {s.number for s in self.shards.returned}
        assert set(self.lanes.taken) == away, "a lane is lost, or kept for a shard that is done"
        used = [lane for lane, _ in (*self.lanes.taken.values(), *self.lanes.free)]
        assert len(used) == len(set(used)) == self.lanes.count, "two shards share a lane"
