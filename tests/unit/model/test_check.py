"""Every way a model file can break the contract is reported before anything is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import ModelError, SpecError
from elasticdl.model.check import check_contract
from elasticdl.spec import DataSpec, JobKind, JobSpec, ModelSpec, PlanSpec, ScriptSpec
from elasticdl.spec.plan import ComputePrecision

PARTS = {
    "forward": "def forward(hidden=8):\n    return None",
    "loss": "def loss(labels, predictions):\n    return None",
    "optimizer": "def optimizer(parameters, lr=0.1):\n    return None",
    "dataset_fn": "def dataset_fn(dataset, mode, metadata):\n    return dataset",
}


def job(tmp_path: Path, kind: JobKind = JobKind.TRAINING, definition: str = "m.net.forward", **fields: Any) -> JobSpec:
    model = ModelSpec(zoo=str(tmp_path), definition=definition, params=fields.pop("params", {}))
    return JobSpec(name="job", kind=kind, model=model, **fields)


def write(tmp_path: Path, **changes: str) -> Path:
    file = tmp_path / "m" / "net.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n\n\n".join(part for part in (PARTS | changes).values() if part) + "\n")
    return file


def problem(spec: JobSpec) -> str:
    with pytest.raises(ModelError) as caught:
        check_contract(spec)
    return str(caught.value)


def test_a_file_that_fulfils_the_contract_passes_without_remarks(tmp_path: Path) -> None:
    write(tmp_path)

    assert check_contract(job(tmp_path, params={"hidden": 16, "lr": 0.5})) == []


def test_returns_of_nested_functions_are_not_checked(tmp_path: Path) -> None:
    write(tmp_path, forward="def forward():\n    def pair():\n        return 1, 2\n    return pair")

    assert check_contract(job(tmp_path)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"loss": ""}, "loss: expected loss(labels, predictions) -> scalar tensor; found no such function"),
        ({"loss": "", "x": "def losses(labels, predictions): ..."}, "did you mean losses?"),
        ({"loss": "def loss(predictions): ..."}, "found loss(predictions), which takes 1 of the 2 arguments"),
        ({"loss": "def loss(predictions, labels): ..."}, "takes the arguments in another order"),
        ({"loss": "def loss(output, target): ..."}, "takes the predictions first; labels come first here"),
        ({"loss": "def loss(labels, predictions, weight): ..."}, "also requires weight"),
        ({"loss": "def loss(labels, predictions, *, weight): ..."}, "also requires weight"),
        ({"loss": "async def loss(labels, predictions): ..."}, "found async def: write a plain def"),
        (
            {"optimizer": "def optimizer(parameters):\n    if parameters:\n        return [1, 2]"},
            "optimizer returns several optimizers; a model file trains one model with one optimizer",
        ),
        ({"forward": "def forward():\n    return {'generator': 1}"}, "forward returns several models"),
        (
            {"forward": "def forward():\n    return 1, 2"},
            "elasticdl.torch.join, which takes lists of both, as examples/12",
        ),
        ({"optimizer": ""}, "optimizer: expected optimizer(parameters, lr=…) -> torch.optim.Optimizer"),
        ({"optimizer": "def optimizer(): ..."}, "found optimizer(), which takes 0 of the 1 arguments"),
        (
            {"optimizer": "def optimizer(parameters, lr): ..."},
            "also requires lr; give it with --model_params or a default",
        ),
        ({"optimizer": "", "x": "def optimiser(parameters, lr=1): ..."}, "did you mean optimiser?"),
        ({"dataset_fn": ""}, "dataset_fn: expected dataset_fn(dataset, mode, metadata)"),
        ({"dataset_fn": "def dataset_fn(dataset, mode): ..."}, "takes 2 of the 3 arguments"),
        ({"dataset_fn": "def dataset_fn(mode, dataset, metadata): ..."}, "takes the arguments in another order"),
        ({"forward": ""}, "forward: expected forward(**model_params) -> torch.nn.Module; found no such function"),
        ({"forward": "", "x": "def foward(): ..."}, "did you mean foward?"),
        ({"forward": "def forward(hidden): ..."}, "forward(hidden) also requires hidden; give it with --model_params"),
        ({"forward": "class forward(nn.Module):\n    def __init__(self, width): ..."}, "also requires width"),
        ({"x": "def eval_metrics_fn(labels): ..."}, "eval_metrics_fn(labels), which also requires labels"),
        ({"x": "def callbacks(model): ..."}, "callbacks(model), which also requires model"),
        ({"x": "def learning_rate(): ..."}, "found learning_rate(), which takes 0 of the 1 arguments"),
        ({"x": "def custom_data_reader(): ..."}, "custom_data_reader(), which takes 0 of the 1 arguments"),
        ({"x": "def custom_data_reader(data_path, split): ..."}, "also requires split"),
        ({"x": "class PredictionOutputsProcessor:\n    def process(self, predictions): ..."}, "1 of the 2 arguments"),
        ({"x": "class PredictionOutputsProcessor:\n    def proces(self, a, b): ..."}, "did you mean proces?"),
    ],
)
def test_each_broken_function_is_named_with_what_was_expected(
    tmp_path: Path, changes: dict[str, str], expected: str
) -> None:
    file = write(tmp_path, **changes)

    message = problem(job(tmp_path))

    assert str(file) in message
    assert expected in message


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    write(tmp_path, loss="def loss(): ...", optimizer="", dataset_fn="def dataset_fn(dataset): ...")

    message = problem(job(tmp_path))

    assert "3 problems" in message
    assert "line 5, loss" in message and "optimizer: expected" in message and "line 8, dataset_fn" in message


def test_a_syntax_error_is_shown_with_its_line_and_column(tmp_path: Path) -> None:
    file = write(tmp_path, loss="def loss(labels, predictions)\n    return 1")

    message = problem(job(tmp_path))

    assert f"{file}, line 5: expected ':'" in message
    assert message.endswith("def loss(labels, predictions)\n                                 ^")


def test_a_file_that_is_not_text_is_a_clear_error(tmp_path: Path) -> None:
    write(tmp_path).write_bytes(b"\x00\xff")

    assert "net.py" in problem(job(tmp_path))


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("forward", "expected file.function"),
        ("m.net.for-ward", "expected file.function"),
        ("m/net.forward", "expected file.function"),
        ("..net.forward", "expected file.function"),
        ("m.nett.forward", "did you mean m.net.forward?"),
        ("m.net", "did you forget the function, as in m.net.forward?"),
        ("x.y.z.forward", "holds m.net"),
    ],
)
def test_a_wrong_definition_is_refused_with_the_right_one(tmp_path: Path, definition: str, expected: str) -> None:
    write(tmp_path)

    assert expected in problem(job(tmp_path, definition=definition))


def test_a_zoo_that_is_not_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert "expected a directory, found none" in problem(job(tmp_path / "absent"))
    assert "expected a directory, found a file" in problem(job(tmp_path / "file"))


def test_a_package_holds_its_model_in_init(tmp_path: Path) -> None:
    write(tmp_path).rename(tmp_path / "m" / "__init__.py")

    assert check_contract(job(tmp_path, definition="m.forward")) == []


def test_parameters_that_no_function_accepts_are_refused_with_the_closest_match(tmp_path: Path) -> None:
    write(tmp_path)

    message = problem(job(tmp_path, params={"hiden": 8}))

    assert "neither the model nor optimizer takes 'hiden'; they take hidden, lr; did you mean hidden?" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"forward": "def forward(**params): ..."},
        {"optimizer": "def optimizer(parameters, **params): ..."},
        {"forward": "from layers import forward"},
        {"forward": "forward = build()"},
        {"forward": "@cached\ndef forward(): ..."},
        {"optimizer": "optimizer = torch.optim.SGD"},
        {"forward": "class forward(Parent): ..."},
    ],
)
def test_parameters_are_checked_at_run_time_if_the_source_is_not_enough(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    write(tmp_path, **changes)

    assert check_contract(job(tmp_path, params={"anything": 1})) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "try:\n    from fast import loss\nexcept ImportError:\n    def loss(labels, predictions): ..."},
        {"loss": "from losses import *"},
        {"loss": "from losses import cross_entropy as loss"},
        {"loss": "loss: Loss = make()"},
        {"loss": "loss, other = make()"},
        {"loss": "def loss(*args): ..."},
        {"loss": "def loss(y, y_hat, /, weight=None, **rest): ..."},
        {"x": "def custom_data_reader(data_path, **params): ..."},
        {"x": "class PredictionOutputsProcessor(Parent): ..."},
    ],
)
def test_a_function_may_be_bound_in_any_way(tmp_path: Path, changes: dict[str, str]) -> None:
    write(tmp_path, **changes)

    assert check_contract(job(tmp_path)) == []


def test_an_annotation_without_a_value_binds_nothing(tmp_path: Path) -> None:
    write(tmp_path, loss="loss: Loss")

    assert "found no such function" in problem(job(tmp_path))


def test_each_kind_of_job_needs_its_own_functions(tmp_path: Path) -> None:
    write(tmp_path, loss="", optimizer="")

    assert check_contract(job(tmp_path, JobKind.PREDICTION)) == []
    assert "nothing to evaluate" in problem(job(tmp_path, JobKind.EVALUATION))
    write(tmp_path, optimizer="")
    assert check_contract(job(tmp_path, JobKind.EVALUATION)) == []


def test_a_learning_rate_that_would_be_ignored_is_refused(tmp_path: Path) -> None:
    plan = PlanSpec(learning_rate=0.5)
    write(tmp_path)
    assert "say two things" in problem(job(tmp_path, plan=plan, params={"lr": 0.1}))
    write(tmp_path, optimizer="def optimizer(parameters): ...")
    assert "optimizer(parameters) does not take lr" in problem(job(tmp_path, plan=plan))
    write(tmp_path, x="def learning_rate(step): ...")
    assert "sets the rate of every step" in problem(job(tmp_path, plan=plan))


def test_a_required_rate_may_come_from_the_option_or_the_schedule(tmp_path: Path) -> None:
    needy = "def optimizer(parameters, lr): ..."
    write(tmp_path, optimizer=needy)
    assert check_contract(job(tmp_path, plan=PlanSpec(learning_rate=0.5))) == []
    write(tmp_path, optimizer=needy, x="def learning_rate(step): ...")
    assert check_contract(job(tmp_path)) == []


def test_reader_params_must_suit_the_reader(tmp_path: Path) -> None:
    write(tmp_path, x="def custom_data_reader(data_path, split='train'): ...")

    assert check_contract(job(tmp_path, data=DataSpec(reader_params={"split": "test"}))) == []
    assert "does not take spilt" in problem(job(tmp_path, data=DataSpec(reader_params={"spilt": "test"})))


def test_reader_params_without_a_reader_are_refused_with_the_other_problems(tmp_path: Path) -> None:
    data = DataSpec(reader_params={"sep": ";", "rows": 5})
    write(tmp_path, loss="def loss(labels): ...")
    message = problem(job(tmp_path, data=data))
    assert "--data_reader_params: sep, rows would be ignored" in message
    assert "leave the option out" in message and "--delimiter" in message
    assert "line " in message and "loss(labels)" in message

    write(tmp_path, x="def custom_reader(data_path): ...")
    assert "did you mean custom_reader?" in problem(job(tmp_path, data=data))

    write(tmp_path, x="from somewhere import *")
    assert check_contract(job(tmp_path, data=data)) == []


def test_a_misspelt_optional_function_gives_a_remark(tmp_path: Path) -> None:
    write(tmp_path, x="def eval_metric_fn(): ...")

    (remark,) = check_contract(job(tmp_path))

    assert "eval_metric_fn is not in the contract" in remark and "did you mean eval_metrics_fn?" in remark


def test_a_script_must_exist_and_be_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    spec = JobSpec(name="job", kind=JobKind.SCRIPT, script=ScriptSpec(path=str(script)))

    with pytest.raises(SpecError, match="no such script"):
        check_contract(spec)
    script.write_text("from elasticdl.torch import join\njoin()\n")
    assert check_contract(spec) == []
    script.write_text("import torch\n")
    with pytest.raises(SpecError, match="never calls"):
        check_contract(spec)
    script.write_text("import\n")
    with pytest.raises(ModelError, match="line 1"):
        check_contract(spec)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            PlanSpec(precision=ComputePrecision("bf16")),
            "plan.precision: bf16: torch.autocast does not reach a model of Keras",
        ),
        (PlanSpec(micro_batch_size=4), "plan.micro_batch_size: 4: batches of a Keras model are not split"),
    ],
)
def test_options_of_torch_are_refused_for_keras(tmp_path: Path, plan: PlanSpec, expected: str) -> None:
    write(tmp_path, head="import keras", optimizer="def optimizer(lr=0.1):\n    return None")

    check_contract(job(tmp_path))
    with pytest.raises(SpecError, match=expected):
        check_contract(job(tmp_path, plan=plan))
    check_contract(job(tmp_path, JobKind.EVALUATION, plan=plan))  # in which nothing is trained
