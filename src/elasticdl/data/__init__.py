"""Readers of records, the order they are trained in, and the dataset a model file builds upon."""

from elasticdl.data.collate import Stack, stack_arrays
from elasticdl.data.dataset import Batch, Dataset, Metadata, Mode
from elasticdl.data.interface import ColumnarSource, Indices, ProgressCallback, Record, RecordSource, Schema
from elasticdl.data.order import count_shards, iterate_shards
from elasticdl.data.plan import TrainingPlan, make_plan
from elasticdl.data.prefetch import Prefetcher
from elasticdl.data.readers.images import ImageFolder
from elasticdl.data.readers.mapped import as_source
from elasticdl.data.sources import open_source

__all__ = [
    "Batch",
    "ColumnarSource",
    "Dataset",
    "ImageFolder",
    "Indices",
    "Metadata",
    "Mode",
    "Prefetcher",
    "ProgressCallback",
    "Record",
    "RecordSource",
    "Schema",
    "Stack",
    "TrainingPlan",
    "as_source",
    "count_shards",
    "iterate_shards",
    "make_plan",
    "open_source",
    "stack_arrays",
]
