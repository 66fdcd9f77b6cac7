"""Shards: ranges of records, the unit that is leased and shuffled."""

from __future__ import annotations

from collections.abc import Iterator


def shards_of(records: int, shard_records: int) -> Iterator[tuple[int, int, int]]:
    """Number, first record and past-the-last record of each shard; only the last may be short."""
    for number, start in enumerate(range(0, records, shard_records)):
        yield number, start, min(start + shard_records, records)


def shard_count(records: int, shard_records: int) -> int:
    return -(-records // shard_records)
