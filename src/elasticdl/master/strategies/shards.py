"""Dynamic sharding: which worker works on which records, and what happens when it stops.

A shard is leased, never given away. A lease that ends without `finished` puts its shard back at the head of the queue,
without the records already done. Before it is leased, a shard is only a number, and finished shards are only counted:
memory grows with the leases, not with the data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from elasticdl.errors import PoisonShard
from elasticdl.spec import JobSpec
from elasticdl.spec.ids import WorkerId


class ReturnedShard(NamedTuple):
    """A shard whose lease ended early: the records done, and the number of the next attempt."""

    number: int
    done: int
    attempt: int


class ShardLease(NamedTuple):
    id: int
    worker: WorkerId
    shard: int
    start: int
    stop: int  # exclusive
    done: int  # records of [start, stop) that need no more work
    attempt: int
    renewed_at: float
    lane: int = 0  # of training data, see LanePool
    number: int = 0


SourcedLease = tuple[str, int, ShardLease]  # (source, step of the weights that are evaluated, lease)


@dataclass(slots=True)
class ShardQueue:
    """Every shard is in exactly one state: not yet leased, leased, returned or finished."""

    source: str
    records: int
    shard_records: int
    next_shard: int = 0
    returned: deque[ReturnedShard] = field(default_factory=deque)
    leases: dict[int, ShardLease] = field(default_factory=dict)  # by the time of renewal, oldest first
    finished: int = 0
    finished_records: int = 0

    @property
    def shard_count(self) -> int:
        return -(-self.records // self.shard_records)

    @property
    def is_drained(self) -> bool:
        return not self.leases and not self.returned and self.next_shard == self.shard_count

    @property
    def done_records(self) -> int:
        """Records that need no more work, those of running leases included."""
        leased = sum(lease.done for lease in self.leases.values())
        return self.finished_records + leased + sum(shard.done for shard in self.returned)

    def take(self, worker: WorkerId, lease_id: int, now: float) -> ShardLease | None:
        """Lease the next shard. None means none is waiting; ask `is_drained` whether to stop."""
        if self.returned:
            shard = self.returned.popleft()
        elif self.next_shard < self.shard_count:
            shard = ReturnedShard(self.next_shard, 0, 1)
            self.next_shard += 1
        else:
            return None
        start = shard.number * self.shard_records
        stop = min(start + self.shard_records, self.records)
        lease = ShardLease(lease_id, worker, shard.number, start, stop, shard.done, shard.attempt, now)
        self.leases[lease_id] = lease
        return lease

    def advance(self, lease_id: int, worker: WorkerId, done: int, now: float) -> bool:
        """Record progress in a shard. False for a late report: another worker has the shard now."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.worker != worker:
            return False
        del self.leases[lease_id]
        reached = max(lease.done, min(done, lease.stop - lease.start))
        self.leases[lease_id] = lease._replace(done=reached, renewed_at=now)
        return True

    def finish(self, lease_id: int, worker: WorkerId) -> bool:
        """Record that a shard is done. False for a late report, which is ignored."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.worker != worker:
            return False
        del self.leases[lease_id]
        self.finished += 1
        self.finished_records += lease.stop - lease.start
        return True

    def fail(self, lease_id: int, reason: str, max_attempts: int) -> None:
        """Record a failed attempt and return the shard; PoisonShard after `max_attempts`."""
        lease = self.leases.pop(lease_id)
        self.returned.appendleft(ReturnedShard(lease.shard, lease.done, lease.attempt + 1))
        if lease.attempt >= max_attempts:
            raise PoisonShard(
                f"shard {lease.shard}, records {self.source}[{lease.start}:{lease.stop}], failed "
                f"{lease.attempt} times, last on {lease.worker} after {lease.done} records: {reason}. "
                "Look at these records, or at the code that reads them"
            )

    def release(self, worker: WorkerId) -> None:
        """Take back all leases of a worker that is gone. That does not count as a failed attempt."""
        held = [lease for lease in self.leases.values() if lease.worker == worker]
        for lease in sorted(held, key=lambda lease: lease.shard, reverse=True):
            del self.leases[lease.id]
            self.returned.appendleft(ReturnedShard(lease.shard, lease.done, lease.attempt))

    def overdue_leases(self, now: float, lease_s: float) -> Iterator[ShardLease]:
        for lease in self.leases.values():
            if now - lease.renewed_at < lease_s:
                return
            yield lease

    def validate(self) -> None:
        """Assert that no shard is lost or doubled."""
        unfinished = [lease.shard for lease in self.leases.values()] + [shard.number for shard in self.returned]
        assert len(unfinished) == len(set(unfinished)), f"a shard is in two states: {sorted(unfinished)}"
        assert all(0 <= number < self.next_shard <= self.shard_count for number in unfinished)
        assert self.finished + len(unfinished) == self.next_shard, "a shard is lost"
        assert all(0 <= lease.done <= lease.stop - lease.start for lease in self.leases.values())


TRAINING_SOURCE = "training"
# A worker should take several shards in a job. Otherwise the end of the job waits for the slowest worker.
SHARDS_PER_WORKER = 8
# And several between two evaluations for which training waits.
SHARDS_PER_EVALUATION = 4
_LANE_BITS = 20


@dataclass(slots=True)
class LanePool:
    """Assigns to each shard the sender and the numbers under which its batches are pushed.

    A ps applies each push once, by its sender and number. The sender is the lane of a shard, the number counts its
    batches. Both stay with the shard until it is finished, whichever worker holds it, so a batch that is computed again
    counts once. Lanes are reused: there are about as many as shards are leased at a time.
    """

    first: int  # the number of the first lane: different in each run of the job
    count: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)  # (lane, its next number)
    taken: dict[int, tuple[int, int]] = field(default_factory=dict)  # shard: (lane, number of its first batch)

    def acquire(self, shard: int) -> tuple[int, int]:
        """The lane of a shard and the number of its first batch: its own, otherwise a free one, otherwise a new one."""
        if shard not in self.taken:
            if self.free:
                self.taken[shard] = self.free.pop()
            else:
                self.taken[shard] = (self.first + self.count, 1)
                self.count += 1
        return self.taken[shard]

    def release(self, shard: int, batches: int) -> None:
        lane, number = self.taken.pop(shard)
        self.free.append((lane, number + batches))


@dataclass(slots=True)
class TrainingQueue:
    """The training data of the plan, in shards of whole batches."""

    shards: ShardQueue
    minibatch: int
    lanes: LanePool

    @classmethod
    def create(cls, spec: JobSpec, records: int, started_at: float) -> TrainingQueue:
        minibatch = spec.plan.minibatch_size
        fair_size = -(-records // (SHARDS_PER_WORKER * spec.workers.max))
        if spec.evaluation.wait and spec.evaluation.every_steps:
            fair_size = min(
                fair_size, -(-spec.evaluation.every_steps * minibatch // (SHARDS_PER_EVALUATION * spec.workers.max))
            )
        size = -(-min(spec.data.shard_records, fair_size) // minibatch) * minibatch
        return cls(ShardQueue(TRAINING_SOURCE, records, size), minibatch, LanePool(int(started_at) << _LANE_BITS))

    @property
    def batches_done(self) -> int:
        return -(-self.shards.done_records // self.minibatch)

    def take(self, worker: WorkerId, lease_id: int, now: float) -> ShardLease | None:
        lease = self.shards.take(worker, lease_id, now)
        if lease is None:
            return None
        lane, number = self.lanes.acquire(lease.shard)
        self.shards.leases[lease_id] = lease._replace(lane=lane, number=number)
        return self.shards.leases[lease_id]

    def finish(self, lease_id: int, worker: WorkerId) -> bool:
        """Record that a shard is done. False for a late report, which is ignored."""
        lease = self.shards.leases.get(lease_id)
        if lease is None or not self.shards.finish(lease_id, worker):
            return False
        self.lanes.release(lease.shard, -(-(lease.stop - lease.start) // self.minibatch))
        return True

    def validate(self) -> None:
        """Assert that no shard is lost or doubled, and that no two push under the same lane."""
        self.shards.validate()
        unfinished = {lease.shard for lease in self.shards.leases.values()} | {
            shard.number for shard in self.shards.returned
        }
        assert set(self.lanes.taken) == unfinished, "a lane is lost, or kept for a finished shard"
        lanes = [lane for lane, _ in (*self.lanes.taken.values(), *self.lanes.free)]
        assert len(lanes) == len(set(lanes)) == self.lanes.count, "two shards share a lane"
