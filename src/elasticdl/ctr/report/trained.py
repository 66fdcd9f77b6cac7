"""A trained model of clicks, from an export or a checkpoint, with the job whose files lie beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint import image as images
from elasticdl.checkpoint.export import PROGRAM_FILE, find_weights
from elasticdl.ctr.report.quality import Floats
from elasticdl.errors import ModelError, SpecError
from elasticdl.features import front as fronts
from elasticdl.model.evaluation import inference
from elasticdl.worker.tables import hold_rows
from elasticdl.zoo.ctr.job import Job


class Trained:
    """Scores by the export's program where there is one, else by the zoo's model with its weights."""

    def __init__(self, place: Path, files: Path, step: int, module: nn.Module, *, has_program: bool) -> None:
        self.place, self.files, self.step = place, files, step
        self.job = Job(files)
        self.has_program = has_program
        self._module = module

    @classmethod
    def load(cls, directory: Path, params: dict[str, Any]) -> Trained:
        """An export, a checkpoint, or the newest one in a directory; `params` beside those of its job.json."""
        image, place = find_weights(directory)
        files = _files(place)
        has_program = (place / PROGRAM_FILE).exists()
        if has_program:
            module: nn.Module = torch.export.load(place / PROGRAM_FILE).module()
        else:
            module = Job(files).forward(**params)
            images.restore(hold_rows(module, image, place), module, None)
        return cls(place, files, image.step, module, has_program=has_program)

    def score(self, features: Any) -> Floats:
        """Logits. ModelError where one is no finite number."""
        if self.has_program:  # it is as it was exported: for evaluation, and refuses to be asked for another mode
            with torch.no_grad():
                predictions = self._module(features)
        else:
            with inference(self._module):
                predictions = self._module(features)
        if not isinstance(predictions, dict) or "score" not in predictions:
            raise ModelError(f"{self.place}: expected predictions with a 'score', as models of the zoo give")
        scores: Floats = predictions["score"].reshape(-1).float().numpy()
        if not np.isfinite(scores).all():
            raise ModelError(f"{self.place}: the model gives scores that are no finite numbers")
        return scores

    @property
    def parameters(self) -> int:
        """Numbers that were learnt; rows of tables in files, too."""
        state = [one for one in self._module.state_dict().values() if one.is_floating_point()]
        return sum(int(one.numel()) for one in state) + _filed(self.place)


def _files(place: Path) -> Path:
    """Where front.json lies: a checkpoint keeps what belongs to its model in a directory of its own."""
    for found in (place, place / "files"):
        if (found / fronts.FILE).exists():
            return found
    raise SpecError(f"{place}: no {fronts.FILE} beside the model: expected one that was trained from a ctr.yaml")


def _filed(place: Path) -> int:
    """Numbers in tables that lie in files beside the model."""
    from elasticdl.ps import row_files  # needs the native core

    if not (place / row_files.INDEX).exists():
        return 0
    return sum(one.rows * one.spec.columns for one in row_files.RowFiles(place).tables.values())
