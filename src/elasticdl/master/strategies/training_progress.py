"""The progress through the data, as checkpoints of lease training store it. Pure."""

from __future__ import annotations

import dataclasses
from collections import deque

from pydantic import TypeAdapter

from elasticdl.master.machine.state import MasterState
from elasticdl.master.strategies.shards import ReturnedShard, TrainingQueue
from elasticdl.rpc import elasticdl_pb2 as pb

_QUEUE_ADAPTER: TypeAdapter[TrainingQueue] = TypeAdapter(TrainingQueue)


def dump_progress(job: MasterState) -> bytes:
    """The queue as JSON; leased shards continue after the last reported record. Empty for other jobs.

    The rows on the ps may be ahead of it. Batches that are trained again keep lane and number, so they count once.
    """
    queue = job.ledger.training
    if queue is None:
        return b""
    leased = [ReturnedShard(lease.shard, lease.done, lease.attempt) for lease in queue.shards.leases.values()]
    shards = dataclasses.replace(queue.shards, leases={}, returned=deque([*leased, *queue.shards.returned]))
    return _QUEUE_ADAPTER.dump_json(TrainingQueue(shards, queue.minibatch, queue.lanes))


def export_message(job: MasterState, path: str) -> pb.Export:
    """The request to write the last checkpoint, and the model where `path` is given."""
    return pb.Export(path=path, progress=dump_progress(job), step=job.ledger.step)


def restore_queue(text: str, fresh: TrainingQueue) -> TrainingQueue:
    """The queue to continue with. If the plan has changed since, as many records are skipped as were done."""
    earlier = _QUEUE_ADAPTER.validate_json(text)
    if (earlier.shards.records, earlier.minibatch) == (fresh.shards.records, fresh.minibatch):
        return earlier
    shards = fresh.shards
    shards.next_shard = shards.finished = min(earlier.shards.done_records // shards.shard_records, shards.shard_count)
    shards.finished_records = min(shards.finished * shards.shard_records, shards.records)
    return fresh
