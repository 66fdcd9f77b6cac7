from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elasticdl.data import ImageFolder, open_source
from elasticdl.errors import DataError, SpecError
from elasticdl.spec import DataSpec


@pytest.fixture
def root(tmp_path: Path) -> str:
    for label, name in enumerate(("cat", "dog")):
        for number in range(3):
            path = tmp_path / name / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (6, 4), (100 * label, 10 * number, 255)).save(path)
    (tmp_path / "cat" / "notes.txt").write_text("not a picture")
    return str(tmp_path)


def test_folders_are_classes_and_pictures_are_items(root: str) -> None:
    folder = ImageFolder(root)
    assert folder.classes == ("cat", "dog") and len(folder) == 6
    picture, label = folder[4]
    assert label == 1 and picture.shape == (3, 4, 6) and picture.dtype == np.float32
    assert picture[:, 0, 0].tolist() == pytest.approx([100 / 255, 10 / 255, 1.0])


def test_pictures_are_scaled_or_transformed(root: str) -> None:
    assert ImageFolder(root, size=(2, 3))[0][0].shape == (3, 2, 3)
    assert ImageFolder(root, transform=lambda image: image.size)[3] == ((6, 4), 1)
    with pytest.raises(SpecError, match="transform and size were given"):
        ImageFolder(root, transform=lambda image: image, size=(2, 2))


def test_a_data_path_of_pictures_gives_records(root: str) -> None:
    source = open_source(root, DataSpec(format="images"))
    (record,) = source.read(np.array([5]))
    assert (record["label"], record["class"], record["image"].shape) == (1, "dog", (4, 6, 3))
    assert record["image"].dtype == np.uint8 and source.locate(5).endswith("dog/2.png")


def test_what_is_no_picture_is_named(root: str, tmp_path: Path) -> None:
    Path(root, "cat", "0.png").write_bytes(b"not a png")
    with pytest.raises(DataError, match=r"cat/0\.png: cannot be read as an image"):
        ImageFolder(root)[0]
    empty = tmp_path / "texts"
    empty.mkdir()
    (empty / "a.txt").write_text("a")
    with pytest.raises(DataError, match="no images"):
        ImageFolder(str(empty))


def test_without_pillow_the_fix_is_told(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(SpecError, match=r"not installed: .*pip install .*\[images\]"):
        ImageFolder(root)
