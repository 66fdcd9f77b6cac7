"""Random numbers and settings that decide the bits of a training."""

from __future__ import annotations

import os
import random
import zlib

import numpy as np
import torch


def seed_everything(*key: int) -> None:
    """Make all random numbers a function of `key`, e.g. (seed, step, logical rank)."""
    value = zlib.crc32("/".join(map(str, key)).encode())
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(value)
    random.seed(value)
    np.random.seed(value)


def configure_numerics(threads: int, device: str, reproducible: bool) -> None:
    """Set what the bits depend on. The number of threads is part of it: each sums in another order."""
    torch.set_num_threads(threads)
    if device == "cuda" and reproducible:
        # cuBLAS reads it when it starts; without it, sums depend on which stream got which workspace.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
