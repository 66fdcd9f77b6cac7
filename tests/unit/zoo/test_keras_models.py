"""The Keras models of the zoo keep the contract, learn, and are exported as programs that need no ElasticDL."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.readers.mapped import MappedSource, as_source
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError
from elasticdl.model.mode import Mode
from elasticdl.spec import DataSpec
from elasticdl.zoo.census import data as census_data
from elasticdl.zoo.cifar10 import data as cifar_data
from elasticdl.zoo.cifar10.data import CifarImages

pytest.importorskip("tensorflow")

from elasticdl.keras.runtime import tf
from tests.unit.zoo.keras_training import evaluate, load, train

ADULT = Path(__file__).parents[4] / "shared" / "data" / "ctr"

PEOPLE = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
50, Private, 83311, HS-grad, 9, Married-civ-spouse, ?, Husband, White, Male, 0, 0, 13, ?, >50K
28, Private, 338409, Bachelors, 13, Married-civ-spouse, Sales, Wife, Black, Female, 0, 1902, 60, Cuba, >50K
53, ?, 234721, 11th, 7, Divorced, Sales, Unmarried, Black, Female, 0, 0, 25, India, <=50K
"""


class Bright:
    """Digits that can be told apart by where they are bright."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        image = np.random.default_rng(index).integers(0, 60, (28, 28)).astype(np.uint8)
        image[2 * (index % 10) : 2 * (index % 10) + 6, 4:24] = 250
        return image, index % 10


@pytest.mark.parametrize("name", ["mnist_functional", "mnist_subclass"])
def test_digits_are_classified_after_a_few_steps(name: str, tmp_path: Path) -> None:
    source = MappedSource(Bright(), "bright")
    contract = load(name)

    model, losses = train(contract, source, steps=12, batch=32)

    assert losses[-1] < 0.5 * losses[0]
    exports_what_it_predicts(contract, model, source, tmp_path / "out")


def test_both_ways_to_write_the_net_of_digits_have_the_same_weights() -> None:
    shapes = []
    for name in ("mnist_functional", "mnist_subclass"):
        contract = load(name)
        contract.make_dataset(MappedSource(Bright(), "bright"), Mode.TRAINING)
        shapes.append([tuple(parameter.shape) for parameter in contract.build_model().parameters()])

    assert shapes[0] == shapes[1]


def test_a_resnet_learns_the_direction_of_stripes(tmp_path: Path) -> None:
    source = as_source(CifarImages.open(str(cifar_data.write_data(tmp_path, 320, 40)[0])), "stripes")
    contract = load("cifar10", blocks=1, width=8)

    model, losses = train(contract, source, steps=25, batch=32)

    assert losses[-1] < 0.8 * losses[0]
    exports_what_it_predicts(contract, model, source, tmp_path / "out")


def test_the_whole_resnet_has_the_layers_of_the_paper() -> None:
    resnet = import_module("elasticdl.zoo.cifar10.resnet").forward()

    kernels = [variable for variable in resnet.trainable_variables if variable.name == "kernel"]
    assert len(kernels) == 20
    assert 0.26e6 < sum(int(np.prod(variable.shape)) for variable in kernels) < 0.28e6  # 0.27 M in the paper's table


def test_images_of_cifar_are_read(tmp_path: Path) -> None:
    first = cifar_data.make_records(3, seed=1)
    (tmp_path / "data_batch_1.bin").write_bytes(first.tobytes())
    (tmp_path / "data_batch_2.bin").write_bytes(cifar_data.make_records(2, seed=2).tobytes())
    images = CifarImages.open(str(tmp_path))

    assert len(images) == 5
    picture, label = images[2]
    assert label == 2 and picture.shape == (32, 32, 3)
    assert picture[4, 7].tolist() == first[2]["pixels"][:, 4, 7].tolist()
    assert images[4][1] == 1


@pytest.mark.parametrize("content", [b"", b"short", bytes([77]) + bytes(3072)])
def test_a_file_without_images_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "other.bin").write_bytes(content)

    with pytest.raises(DataError, match=r"other\.bin: expected"):
        CifarImages.open(str(tmp_path / "other.bin"))


def test_a_census_is_learned_from_raw_columns(tmp_path: Path) -> None:
    (tmp_path / "adult").write_text(PEOPLE * 16)
    training, _, statistics = census_data.write_data(tmp_path / "adult", tmp_path / "adult", tmp_path / "data")
    source = open_source(str(training), DataSpec())
    contract = load("census", statistics=str(statistics))

    model, losses = train(contract, source, steps=30, batch=32)

    assert losses[-1] < 0.8 * losses[0]
    program = exports_what_it_predicts(contract, model, source, tmp_path / "out")
    never_seen = {name: tf.constant([""]) for name in contract.specs[Mode.TRAINING][0]}
    assert np.isfinite(program.serve(never_seen).numpy()).all()


def test_a_line_of_the_census_that_is_cut_short_is_named(tmp_path: Path) -> None:
    (tmp_path / "adult").write_text("|1x3 Cross validator\n39, State-gov\n")

    with pytest.raises(DataError, match="line 2: expected 15 fields"):
        list(census_data.read_rows(tmp_path / "adult"))


@pytest.mark.slow
@pytest.mark.skipif(not (ADULT / "adult.data.xz").exists(), reason="UCI's Adult data set is not on this machine")
def test_wide_and_deep_is_right_on_the_census_as_often_as_it_should(tmp_path: Path) -> None:
    training, test, statistics = census_data.write_data(ADULT / "adult.data.xz", ADULT / "adult.test.xz", tmp_path)
    source = open_source(str(training), DataSpec())
    contract = load("census", statistics=str(statistics))

    model, _ = train(contract, source, steps=5 * len(source) // 128, batch=128)

    metrics = evaluate(contract, model, open_source(str(test), DataSpec()))
    assert metrics["accuracy"] > 0.84 and metrics["auc"] > 0.89


def exports_what_it_predicts(contract: Any, model: Any, source: Any, directory: Path) -> Any:
    """The SavedModel, which gives the bits of the model on records that are predicted."""
    batch = contract.make_dataset(source, Mode.PREDICTION).read_batch(np.arange(16))
    model.eval()
    contract.export(model, batch.features, directory, {"step": 1})
    program = tf.saved_model.load(str(directory))
    np.testing.assert_array_equal(program.serve(batch.features).numpy(), model(batch.features).numpy())
    return program
