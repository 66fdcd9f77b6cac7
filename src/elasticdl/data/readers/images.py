"""Reads images from folders named by class, `root/class/image.jpg`; the sorted folder names are labels 0, 1, 2, …"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

import numpy as np

from elasticdl.data.files import paths, stored_file
from elasticdl.data.interface import Indices, Record, check_indices
from elasticdl.errors import BadRecord, DataError, SpecError
from elasticdl.extras import install_command

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")


class ImageFolder:
    """A map-style dataset of (image, label), for `elasticdl.torch.join`, a DataLoader or `custom_data_reader`.

    `transform` receives a PIL image in RGB. Without it an image is a float32 array [3, height, width] from 0 to 1,
    scaled to `size` = (height, width) if given. Images of different sizes need one of the two to become a batch.
    """

    def __init__(
        self, root: str, transform: Callable[[Any], Any] | None = None, size: tuple[int, int] | None = None
    ) -> None:
        if transform is not None and size is not None:
            raise SpecError("ImageFolder: transform and size were given; resize in transform, or leave it out")
        self.root = str(root)
        self.transform = transform
        self.size = size
        _pillow()
        self.image_paths = find_images(self.root)
        self.classes = class_names(self.image_paths)
        self._labels = {name: label for label, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self.image_paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        path = self.image_paths[number]
        image = open_image(path)
        if self.transform is not None:
            return self.transform(image), self._labels[_class_of(path)]
        if self.size is not None:
            height, width = self.size
            image = image.resize((width, height))
        array = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / np.float32(255)
        return array, self._labels[_class_of(path)]


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Images as records {"image": uint8 [height, width, 3], "label": number, "class": name}, for a model file."""

    name: str
    image_paths: tuple[str, ...]
    classes: tuple[str, ...]
    columns: tuple[str, ...] = ("image", "label", "class")
    can_read_ahead: bool = True

    def __len__(self) -> int:
        return len(self.image_paths)

    def read(self, indices: Indices) -> list[Record]:
        records = []
        for number in check_indices(indices, len(self), self.name).tolist():
            name = _class_of(self.image_paths[number])
            image = np.array(open_image(self.image_paths[number]))
            records.append({"image": image, "label": self.classes.index(name), "class": name})
        return records

    def locate(self, index: int) -> str:
        return self.image_paths[index]

    def close(self) -> None:
        """Nothing is open."""


def open_images(uri: str) -> ImageSource:
    """Opens the images at `uri` as records."""
    _pillow()
    image_paths = find_images(uri)
    return ImageSource(uri, image_paths, class_names(image_paths))


def find_images(uri: str) -> tuple[str, ...]:
    """Finds all images at `uri`, sorted by path. Raises DataError if there are none."""
    files = paths.expand_paths(uri, known_only=False)
    image_paths = tuple(path for path in files if PurePosixPath(path).suffix.lower() in IMAGE_EXTENSIONS)
    if not image_paths:
        raise DataError(
            f"{uri}: no images ({', '.join(IMAGE_EXTENSIONS)}) among its {len(files)} files; expected folders of "
            f"them, named by their classes: {uri.rstrip('/')}/cat/1.jpg"
        )
    return image_paths


def class_names(image_paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({_class_of(path) for path in image_paths}))


def open_image(path: str) -> Any:
    """Reads an image as a PIL image in RGB."""
    filesystem, location = stored_file.resolve_filesystem(path)
    try:
        content = stored_file.read_with_retry(path, lambda: filesystem.cat_file(location))
        with _pillow().open(io.BytesIO(content)) as image:
            return image.convert("RGB")
    except OSError as exc:  # PIL's errors are of this kind, too
        raise BadRecord(f"{path}: cannot be read as an image: {exc}") from exc


def _class_of(path: str) -> str:
    return PurePosixPath(path).parent.name


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as exc:
        raise SpecError(f"images are read by Pillow, which is not installed: {install_command('images')}") from exc
    return Image
