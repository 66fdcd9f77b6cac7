"""Every model of the zoo keeps the contract, learns, exports, and its data needs no download."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import elasticdl.zoo
from elasticdl.checkpoint.export import export_model
from elasticdl.data.readers.mapped import as_source
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError
from elasticdl.model import contract
from elasticdl.model.check import check_contract
from elasticdl.model.contract import Contract
from elasticdl.model.evaluation import predict_records
from elasticdl.model.mode import Mode
from elasticdl.spec import DataSpec, JobKind, JobSpec, ModelSpec
from elasticdl.zoo.digits import data as digits_data
from elasticdl.zoo.mnist.idx import IdxImages
from elasticdl.zoo.text import data as text_data
from tests.unit.zoo.training import train

ZOO = Path(elasticdl.zoo.__file__).parent
MNIST = Path(__file__).parents[4] / "shared" / "data" / "images" / "mnist-t10k-images-idx3-ubyte.xz"


def load(definition: str) -> Contract:
    model = ModelSpec(zoo=str(ZOO), definition=definition)
    assert check_contract(JobSpec(name="job", model=model)) == []
    return contract.load_contract(model, JobKind.TRAINING)


def test_digits_are_read_after_a_few_epochs(tmp_path: Path) -> None:
    training, test = (open_source(str(path), DataSpec()) for path in digits_data.write_data(tmp_path))

    metrics = train(load("digits.digits.forward"), training, test, steps=90, batch=64)

    assert len(training) + len(test) == 1797
    assert metrics["accuracy"] > 0.9


def test_the_transformer_learns_more_than_the_frequency_of_letters(tmp_path: Path) -> None:
    training, test = (open_source(str(path), DataSpec()) for path in text_data.write_data(tmp_path))

    metrics = train(load("text.text.forward"), training, test, steps=50, batch=16)

    counts = np.array(list(Counter("".join(text_data.cut_passages()[:: text_data.TEST_SHARE])).values()))
    shares = counts / counts.sum()
    of_frequencies = float(np.exp(-(shares * np.log(shares)).sum()))  # about 25
    assert metrics["perplexity"] < 0.9 * of_frequencies


def test_records_without_labels_can_be_predicted(tmp_path: Path) -> None:
    _, digits = digits_data.write_data(tmp_path / "digits")
    _, text = text_data.write_data(tmp_path / "text")
    images = write_idx(tmp_path, np.zeros((5, 28, 28)), np.zeros(5))
    expected = {"digits.digits": (4, 10), "text.text": (4, 64, 128), "mnist.mnist": (4, 10)}
    paths = {"digits.digits": digits, "text.text": text, "mnist.mnist": images}

    for name, shape in expected.items():
        model_contract = load(f"{name}.forward")
        source = model_contract.make_reader(str(paths[name]), {}) or open_source(str(paths[name]), DataSpec())
        dataset = model_contract.make_dataset(source, Mode.PREDICTION)
        (predicted,) = predict_records(model_contract.build_model(), dataset, 0, 4, 4, torch.device("cpu"))
        assert predicted.predictions.shape == shape


def test_what_a_position_predicts_does_not_depend_on_what_follows() -> None:
    model = load("text.text.forward").build_model().eval()
    text = torch.randint(0, 128, (1, 12))
    changed = text.clone()
    changed[0, 8:] = 0

    torch.testing.assert_close(model(text)[:, :8], model(changed)[:, :8])
    assert not torch.allclose(model(text)[:, 8:], model(changed)[:, 8:])


def write_idx(directory: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    for name, array in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
        (directory / name).write_bytes(head + array.astype(np.uint8).tobytes())
    return directory / "train-images-idx3-ubyte"


def test_idx_files_are_read_by_position(tmp_path: Path) -> None:
    images = np.arange(3 * 28 * 28).reshape(3, 28, 28).astype(np.uint8)
    path = write_idx(tmp_path, images, np.array([7, 8, 9]))
    model_contract = load("mnist.mnist.forward")
    source = model_contract.make_reader(str(path), {})
    assert source is not None

    batch = model_contract.make_dataset(source, Mode.TRAINING).read_batch(np.array([2, 0]))

    assert batch is not None and batch.labels.tolist() == [9, 7]
    np.testing.assert_allclose(batch.features[:, 0], images[[2, 0]].astype(np.float32) / 255)


@pytest.mark.parametrize("damage", ["truncated", "other file", "missing labels", "too few labels"])
def test_a_damaged_idx_file_is_named(tmp_path: Path, damage: str) -> None:
    path = write_idx(tmp_path, np.zeros((3, 28, 28)), np.zeros(2 if damage == "too few labels" else 3))
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    if damage == "other file":
        path.write_bytes(b"a,b,c\n")
    if damage == "missing labels":
        (tmp_path / "train-labels-idx1-ubyte").unlink()

    with pytest.raises(DataError, match=r"train-(images|labels)-idx"):
        IdxImages.open(str(path))


@pytest.mark.skipif(not MNIST.exists(), reason="the full MNIST is not on this machine")
def test_lenet_learns_mnist() -> None:
    images = IdxImages.open(str(MNIST))
    source = as_source(images, "mnist")

    metrics = train(load("mnist.mnist.forward"), source, source, steps=100, batch=32)

    assert len(images) == 10_000
    assert metrics["accuracy"] > 0.75


@pytest.mark.parametrize(
    ("definition", "features"),
    [
        ("digits.digits.forward", torch.rand(2, 1, 8, 8)),
        ("mnist.mnist.forward", torch.rand(2, 1, 28, 28)),
        ("text.text.forward", torch.randint(0, 128, (2, 64))),
    ],
)
def test_every_model_exports_a_program(tmp_path: Path, definition: str, features: torch.Tensor) -> None:
    files = export_model(load(definition).build_model(), features, tmp_path / "out", {})

    assert "model.pt2" in [file.name for file in files]
