from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import PoisonShard
from elasticdl.master.strategies.shards import ShardQueue
from elasticdl.spec import WorkerId

A, B = WorkerId("a"), WorkerId("b")


def queue(records: int = 25) -> ShardQueue:
    return ShardQueue("validation", records, 10)


def test_shards_cover_all_records_and_the_last_may_be_short() -> None:
    shards = queue()

    leases = [shards.take(A, number, 0.0) for number in range(4)]

    assert [(lease.start, lease.stop) for lease in leases if lease] == [(0, 10), (10, 20), (20, 25)]
    assert leases[3] is None


def test_a_dead_workers_shard_goes_back_to_the_head_of_the_queue_with_its_progress() -> None:
    shards = queue()
    shards.take(A, 1, 0.0)
    shards.advance(1, A, done=4, now=1.0)

    shards.release(A)
    lease = shards.take(B, 2, 2.0)

    assert lease is not None
    assert (lease.shard, lease.done, lease.attempt) == (0, 4, 1)


def test_a_late_report_is_ignored() -> None:
    shards = queue()
    shards.take(A, 1, 0.0)
    shards.release(A)
    shards.take(B, 2, 0.0)

    assert not shards.finish(1, A)
    assert not shards.finish(2, A)
    assert not shards.advance(1, A, 5, 0.0)
    assert shards.finish(2, B)
    assert shards.finished == 1


def test_progress_renews_a_lease() -> None:
    shards = queue()
    shards.take(A, 1, now=0.0)
    shards.take(A, 2, now=0.0)

    shards.advance(1, A, done=1, now=50.0)

    assert [lease.id for lease in shards.overdue_leases(60.0, lease_s=60.0)] == [2]


def test_a_shard_that_fails_on_every_worker_is_named_in_the_error() -> None:
    shards = queue()
    shards.take(A, 1, 0.0)
    shards.fail(1, "bad row", max_attempts=2)
    shards.take(B, 2, 0.0)

    with pytest.raises(PoisonShard, match=r"validation\[0:10\].*failed 2 times.*b after 0 records: bad row"):
        shards.fail(2, "bad row", max_attempts=2)


def test_memory_does_not_grow_with_the_data() -> None:
    shards = ShardQueue("prediction", 10**12, 10)
    for number in range(1000):
        shards.take(A, number, 0.0)
        shards.finish(number, A)

    assert shards.finished == 1000
    assert not shards.leases and not shards.returned


@given(
    st.integers(1, 95),
    st.lists(
        st.tuples(st.sampled_from(["take", "finish", "advance", "release", "fail"]), st.integers(0, 20)), max_size=80
    ),
)
def test_no_shard_is_ever_lost_or_doubled(records: int, operations: list[tuple[str, int]]) -> None:
    shards, next_id, finished = queue(records), 1, set[int]()
    for name, number in operations:
        worker = WorkerId(f"worker-{number % 3}")
        held = [lease for lease in shards.leases.values() if lease.worker == worker]
        match name:
            case "take":
                shards.take(worker, next_id, 0.0)
                next_id += 1
            case "finish" if held:
                assert held[0].shard not in finished
                assert shards.finish(held[0].id, worker)
                finished.add(held[0].shard)
            case "advance" if held:
                shards.advance(held[-1].id, worker, number, 0.0)
            case "fail" if held:
                shards.fail(held[0].id, "", max_attempts=10**6)
            case "release":
                shards.release(worker)
        shards.validate()
    for worker in map(WorkerId, ("worker-0", "worker-1", "worker-2")):
        shards.release(WorkerId(worker))
    while lease := shards.take(A, next_id, 0.0):
        assert lease.shard not in finished
        finished.add(lease.shard)
        assert shards.finish(lease.id, A)
        next_id += 1
    assert shards.is_drained
    assert finished == set(range(shards.shard_count))
    assert shards.finished_records == records
