"""Readers of records, the order they are trained in, and the dataset a model file builds upon."""

from elasticdl.data.collate import Stack, stack_arrays
from elasticdl.data.dataset import Batch, Dataset, Metadata
from elasticdl.data.image_folder import ImageFolder
from elasticdl.data.interface import ColumnarSource, Indices, Progress, Record, RecordSource, Schema
from elasticdl.data.mapped import as_source
from elasticdl.data.mode import Mode
from elasticdl.data.open import open_source
from elasticdl.data.plan import Plan, plan_of
from elasticdl.data.prefetch import Prefetcher
from elasticdl.data.shards import shard_count, shards_of

__all__ = [
    "Batch",
    "ColumnarSource",
    "Dataset",
    "ImageFolder",
    "Indices",
    "Metadata",
    "Mode",
    "Plan",
    "Prefetcher",
    "Progress",
    "Record",
    "RecordSource",
    "Schema",
    "Stack",
    "as_source",
    "open_source",
    "plan_of",
    "shard_count",
    "shards_of",
    "stack_arrays",
]
