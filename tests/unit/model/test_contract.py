"""A loaded model file: what it may contain, and every error it can have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from elasticdl.checkpoint.export import find_weights
from elasticdl.data.dataset import Mode
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.errors import CheckpointCorrupt, DataError, ModelError, SpecError
from elasticdl.model import contract, reduction
from elasticdl.model.contract import Contract
from elasticdl.model.evaluation import inference_mode, predict_records
from elasticdl.spec import JobKind, ModelSpec
from tests.evaluating import evaluate_records

HEAD = """
import numpy as np
import torch
from torch import nn
from elasticdl.model.callbacks import Callback, EarlyStopping
from elasticdl.model.metrics import Accuracy
"""
PARTS = {
    "forward": "def forward(hidden=3): return nn.Linear(2, hidden)",
    "loss": "def loss(labels, predictions): return nn.functional.cross_entropy(predictions, labels)",
    "optimizer": "def optimizer(parameters, lr=0.1, momentum=0.0): return torch.optim.SGD(parameters, lr, momentum)",
    "dataset_fn": "def dataset_fn(dataset, mode, metadata):\n    return dataset.map(lambda r: ([r, -r], int(r) % 3))",
}
CPU = torch.device("cpu")


MEDIAN = """
class Median:
    reduction = "median"
    def update(self, labels, predictions): return [0.0]
def eval_metrics_fn(): return {"a": Median()}
"""


def load(tmp_path: Path, kind: JobKind = JobKind.TRAINING, params: Any = None, **changes: Any) -> Contract:
    (tmp_path / "net.py").write_text("\n".join([HEAD, *(PARTS | changes).values()]) + "\n")
    return contract.load_contract(ModelSpec(zoo=str(tmp_path), definition="net.forward", params=params or {}), kind)


@pytest.fixture(autouse=True)
def _same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_parameters_are_passed_to_the_functions_that_accept_them(tmp_path: Path) -> None:
    functions = load(tmp_path, params={"hidden": 5, "momentum": 0.9})

    module = functions.build_model()
    optimizer = functions.build_optimizer(module, lr=0.25)

    assert isinstance(module, nn.Linear) and module.out_features == 5
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]) == (0.25, 0.9)


def test_a_named_parameter_wins_over_keyword_arguments(tmp_path: Path) -> None:
    forward = "def forward(**params):\n    assert params == {'depth': 2}, params\n    return nn.Linear(2, 3)"
    functions = load(tmp_path, params={"depth": 2, "momentum": 0.5}, forward=forward)

    functions.build_model()

    assert functions.optimizer_params == {"momentum": 0.5}


def test_a_module_class_is_a_model_function(tmp_path: Path) -> None:
    forward = "class forward(nn.Linear):\n    def __init__(self, hidden=7): super().__init__(2, hidden)"

    assert sum(p.numel() for p in load(tmp_path, forward=forward).build_model().parameters()) == 21


def test_the_schedule_gives_the_first_rate_and_every_later_one(tmp_path: Path) -> None:
    functions = load(tmp_path, x="def learning_rate(step): return 1 / (1 + step)")

    assert functions.build_optimizer(functions.build_model()).param_groups[0]["lr"] == 1.0
    assert [functions.learning_rate(step) for step in (0, 1, 3)] == [1.0, 0.5, 0.25]


def test_without_a_schedule_the_optimizer_keeps_its_own_rate(tmp_path: Path) -> None:
    functions = load(tmp_path)

    assert functions.learning_rate(3) is None
    assert functions.build_optimizer(functions.build_model()).param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"forward": "forward = 3"}, "forward: expected forward(**model_params) -> torch.nn.Module; found int"),
        ({"loss": "loss = nn.CrossEntropyLoss()"}, "takes the predictions first; labels come first here"),
        ({"loss": "from torch.nn.functional import cross_entropy as loss"}, "takes the predictions first"),
        ({"optimizer": "optimizer = None"}, "optimizer: expected optimizer(parameters, lr=…)"),
        ({"dataset_fn": "dataset_fn = lambda dataset: dataset"}, "takes 1 of the 3 arguments"),
        ({"x": "callbacks = []"}, "found list, which cannot be called"),
        ({"x": "1 / 0"}, "cannot be imported: ZeroDivisionError: division by zero (line 13)"),
        ({"x": "import no_such_module"}, "No module named 'no_such_module' (line 13)"),
        ({"x": "raise SystemExit(3)"}, "cannot be imported: SystemExit: 3"),
        (
            {"forward": "def forward(*, width): ..."},
            "forward(*, width) also requires width; give it with --model_params",
        ),
    ],
)
def test_a_file_that_breaks_the_contract_does_not_load(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(tmp_path, **changes)

    assert expected in str(caught.value) and str(tmp_path / "net.py") in str(caught.value)


def test_a_parameter_that_no_function_accepts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither the model nor optimizer takes 'hiden'.*did you mean hidden"):
        load(tmp_path, params={"hiden": 3})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"forward": "def forward(): return 3"}, "forward: expected .*Module. Received: 3"),
        ({"forward": "def forward(): return nn.Linear(2)"}, r"forward failed: TypeError: .*\(line \d+\)"),
        ({"optimizer": "def optimizer(parameters, lr=1): return parameters"}, "expected .*Optimizer. Received:"),
        (
            {"forward": "def forward(): return nn.Linear(2, 3), nn.Linear(2, 3)"},
            "forward returns several models; .*12-gan",
        ),
        ({"forward": "def forward(): return {'a': nn.Linear(2, 3)}"}, "forward returns several models"),
        ({"forward": "def forward(): return nn.ModuleList([nn.Linear(2, 3)])"}, "forward returns several models"),
        (
            {"optimizer": "def optimizer(parameters): return [torch.optim.SGD(parameters, 1.0)] * 2"},
            "optimizer returns several optimizers; .*join, which takes lists of both",
        ),
        ({"x": "def learning_rate(step): return '0.1'"}, "learning_rate.* -> float. Received: '0.1'"),
        ({"x": "def eval_metrics_fn(): return [1]"}, "eval_metrics_fn.*Received: "),
        ({"x": "def eval_metrics_fn(): return {'a': Accuracy}"}, "eval_metrics_fn.*Received: "),
        ({"x": "def eval_metrics_fn(): return {'a|b': Accuracy()}"}, "without"),
        ({"x": MEDIAN}, "reduction 'median'; expected one of mean"),
        ({"x": "def callbacks(): return [Callback]"}, "callbacks.*Received: "),
        ({"x": "def callbacks(): return EarlyStopping('accuracy')"}, "callbacks.*Received: "),
        ({"x": "def callbacks(): return [EarlyStopping('accuracy', patience=0)]"}, "patience: expected 1 or more"),
        ({"x": "class PredictionOutputsProcessor: pass"}, "process"),
        ({"x": "def model_files(): return {'a.json': 'text'}"}, "model_files.*file name to bytes. Received: "),
        ({"x": "def model_files(): return {'../a': b''}"}, "model_files.*Received: "),
        ({"x": "def model_files(): return {'model.json': b''}"}, "model.json, which is a file of the export itself"),
        ({"dataset_fn": "def dataset_fn(dataset, mode, metadata): return [1]"}, r"dataset_fn.*Received: \[1\]"),
        ({"loss": "def loss(labels, predictions): return predictions"}, r"scalar tensor. Received: float32\[4, 3\]"),
        ({"loss": "def loss(labels, predictions): return 0.5"}, "scalar tensor. Received: 0.5"),
    ],
)
def test_what_a_function_returns_is_checked(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    functions = load(tmp_path, **changes)

    with pytest.raises(ModelError, match=expected):
        use_all(functions)


def use_all(functions: Contract) -> None:
    module = functions.build_model()
    functions.build_optimizer(module)
    (
        functions.make_metrics(),
        functions.make_callbacks(),
        functions.make_processor(),
        functions.learning_rate(0),
        functions.model_files(),
    )
    batch = functions.make_dataset(MappedSource([1.0, 2.0, 3.0, 4.0], "numbers"), Mode.TRAINING).read_batch(
        torch.arange(4).numpy()
    )
    assert batch is not None
    functions.loss(batch.labels, module(batch.features))


def test_model_files_are_written_beside_the_export_and_verified_like_it(tmp_path: Path) -> None:
    functions = load(tmp_path, x="def model_files(): return {'preprocessor.json': b'{}'}")
    functions.export(functions.build_model(), torch.ones(1, 2), tmp_path / "out", {})

    assert (tmp_path / "out" / "preprocessor.json").read_bytes() == b"{}"
    (tmp_path / "out" / "preprocessor.json").write_bytes(b"[]")
    with pytest.raises(CheckpointCorrupt, match=r"preprocessor\.json"):
        find_weights(tmp_path / "out")


def test_a_failing_loss_keeps_its_error_and_describes_its_arguments(tmp_path: Path) -> None:
    functions = load(tmp_path, loss="def loss(labels, predictions): return predictions @ labels")

    with pytest.raises(RuntimeError) as caught:
        functions.loss(torch.zeros(4), torch.zeros(4, 3))

    assert "labels float32[4], predictions float32[4, 3]" in caught.value.__notes__[0]


def test_modules_beside_the_model_file_can_be_imported_but_shadow_nothing(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_net.py").write_text("WIDTH = 9\n")
    (tmp_path / "random.py").write_text("raise RuntimeError('hides the standard library')\n")

    forward = "import random\nfrom neighbour_of_net import WIDTH\ndef forward(): return nn.Linear(1, WIDTH)"

    assert load(tmp_path, forward=forward).build_model().get_parameter("weight").shape == (9, 1)


def test_a_custom_reader_replaces_the_built_in_one(tmp_path: Path) -> None:
    reader = "def custom_data_reader(data_path, times=1): return [data_path] * times"

    source = load(tmp_path, x=reader).make_reader("here", {"times": 3})

    assert source is not None and source.read(torch.tensor([0, 2]).numpy()) == ["here", "here"]
    assert load(tmp_path).make_reader("here", {}) is None
    with pytest.raises(SpecError, match="times would be ignored"):
        load(tmp_path).make_reader("here", {"times": 3})
    with pytest.raises(DataError, match="no items"):
        load(tmp_path, x=reader).make_reader("here", {"times": 0})


def test_evaluations_of_any_split_add_up_to_that_of_all_records(tmp_path: Path) -> None:
    metrics = "def eval_metrics_fn(): return {'accuracy': Accuracy(), 'mean': lambda labels, p: p.mean()}"
    functions = load(tmp_path, x=metrics)
    torch.manual_seed(0)
    model = functions.build_model()
    dataset = functions.make_dataset(MappedSource([float(i) for i in range(50)], "numbers"), Mode.EVALUATION)

    whole_data = evaluate_records(model, functions, dataset, 0, 50, 50, CPU)
    parts = [evaluate_records(model, functions, dataset, a, b, 4, CPU) for a, b in ((0, 7), (7, 30), (30, 50))]
    together = reduction.add_parts(reduction.add_parts(parts[0], parts[1]), parts[2])

    assert set(whole_data) == {"loss", "accuracy", "mean"}
    assert whole_data["accuracy"][1] == together["accuracy"][1] == 50
    assert reduction.compute_results(together) == pytest.approx(reduction.compute_results(whole_data), rel=1e-5)


def test_an_evaluation_counts_only_records_that_pass_the_filter(tmp_path: Path) -> None:
    changed = PARTS["dataset_fn"].replace("dataset.map", "dataset.filter(lambda r: r >= 8).map")
    functions = load(tmp_path, dataset_fn=changed)
    dataset = functions.make_dataset(MappedSource([float(i) for i in range(10)], "numbers"), Mode.EVALUATION)

    assert evaluate_records(functions.build_model(), functions, dataset, 0, 10, 4, CPU)["loss"][1] == 2


def test_predictions_come_with_their_records(tmp_path: Path) -> None:
    functions = load(
        tmp_path, JobKind.PREDICTION, dataset_fn="def dataset_fn(d, mode, m): return d.map(lambda r: [r, r])"
    )
    model = functions.build_model()
    dataset = functions.make_dataset(MappedSource([float(i) for i in range(11)], "numbers"), Mode.PREDICTION)

    batches = list(predict_records(model, dataset, 2, 11, 4, CPU))

    assert [(batch.first, batch.past) for batch in batches] == [(2, 6), (6, 10), (10, 11)]
    with torch.no_grad():
        inputs = torch.arange(2.0, 11.0).reshape(-1, 1).expand(-1, 2)
        torch.testing.assert_close(torch.cat([batch.predictions for batch in batches]), model(inputs))


def test_inference_restores_the_mode_of_every_module() -> None:
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))
    model[1].eval()

    with inference_mode(model):
        assert not model.training and not model[0].training and not torch.is_grad_enabled()

    assert model.training and model[0].training and not model[1].training
