"""All models of the zoo by name, read from their source: neither torch nor TensorFlow is imported. `python -m elasticdl.zoo.catalog` prints the tables of docs/model-zoo.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from elasticdl.ctr.models import catalog as clicks
from elasticdl.errors import SpecError
from elasticdl.model.functions import suggest_nearest

ZOO_DIRECTORY = Path(__file__).parent
CHECKOUT_PATH = "src/elasticdl/zoo"  # how model files name this directory in their commands

CLICKS, PICTURES, TEXTS, TABLES, OTHERS = "clicks", "pictures", "texts", "tables", "others"


@dataclass(frozen=True, slots=True)
class ZooModel:
    """What `elasticdl zoo` tells of a model."""

    name: str
    group: str
    framework: str
    file: str  # within the zoo
    function: str  # or class, that builds it
    description: str
    paper: str = ""

    @property
    def path(self) -> Path:
        return ZOO_DIRECTORY / self.file

    @property
    def params(self) -> dict[str, Any]:
        """What it takes, with the defaults."""
        arguments = _find_arguments(ast.parse(self.path.read_text(encoding="utf-8")), self.function)
        places = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        pairs = [*zip(places, arguments.defaults, strict=True)]
        pairs += [(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
        return {one.arg: ast.literal_eval(value) for one, value in pairs}

    @property
    def commands(self) -> list[str]:
        """That train it, as they can be typed here; those of a model file stand in its docstring."""
        if self.group == CLICKS:
            init = f"elasticdl ctr init clicks.csv --label clicked --model {self.name}"
            return [init, "elasticdl train ctr.yaml"]
        told = ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or ""
        found = re.findall(r"(?:^|: )((?:python -m|elasticdl) .*)", told, re.MULTILINE)
        here = [" ".join(one.split()).replace(CHECKOUT_PATH, str(ZOO_DIRECTORY)) for one in found]
        return sorted(here, key=lambda one: not one.startswith("python"))  # what makes the data comes first

    def to_dict(self) -> dict[str, str]:
        return {
            "name": self.name, "group": self.group, "framework": self.framework, "words": self.description,
            "paper": self.paper,
        }  # fmt: skip


MODELS: tuple[ZooModel, ...] = (
    *(
        ZooModel(one.name, CLICKS, "keras" if one.is_keras else "torch", one.file, one.class_name, one.description, one.paper)
        for one in clicks.ALL_MODELS
    ),
    ZooModel("digits", PICTURES, "torch", "digits/digits.py", "forward", "a small net for digits of 8 x 8 pixels"),
    ZooModel("mnist", PICTURES, "torch", "mnist/mnist.py", "forward", "LeNet-5 for digits", "LeCun et al., 1998"),
    ZooModel("mnist_functional", PICTURES, "keras", "mnist/functional.py", "forward", "digits, by the functional API"),
    ZooModel("mnist_subclass", PICTURES, "keras", "mnist/subclass.py", "Digits", "digits, by a class of one's own"),
    ZooModel(
        "cifar10", PICTURES, "keras", "cifar10/resnet.py", "forward", "ResNet-20 for pictures of 32 x 32 pixels",
        "He et al., CVPR 2016, arXiv:1512.03385",
    ),
    ZooModel(
        "text", TEXTS, "torch", "text/text.py", "forward", "a transformer that writes, letter by letter",
        "Vaswani et al., NeurIPS 2017, arXiv:1706.03762",
    ),
    ZooModel(
        "census", TABLES, "keras", "census/wide_deep.py", "forward", "wide & deep on a census, raw columns in",
        "Cheng et al., DLRS 2016, arXiv:1606.07792",
    ),
    ZooModel("paced", OTHERS, "torch", "paced/paced.py", "forward", "batches that take as long as you say, for tests"),
)  # fmt: skip

MODELS_BY_NAME: dict[str, ZooModel] = {one.name: one for one in MODELS}


def find_model(name: str) -> ZooModel:
    """SpecError, with the nearest name, for one that is not known."""
    if name not in MODELS_BY_NAME:
        raise SpecError(
            f"the zoo has no {name!r}{suggest_nearest(name, MODELS_BY_NAME) or '; `elasticdl zoo list` names all'}"
        )
    return MODELS_BY_NAME[name]


def group_models() -> Iterator[tuple[str, list[ZooModel]]]:
    """Models by what they are of and written in."""
    for (group, framework), found in groupby(MODELS, key=lambda one: (one.group, one.framework)):
        yield f"{group}, {'Keras' if framework == 'keras' else framework}", list(found)


def render_tables() -> str:
    """As they stand in docs/model-zoo.md."""
    parts = []
    for title, models in group_models():
        rows = [f"| `{one.name}` | {one.description} | {one.paper} | `{one.file}` |" for one in models]
        parts.append(
            "\n".join([f"### {title}", "", "| model | what it is | paper | file |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _find_arguments(tree: ast.Module, name: str) -> ast.arguments:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node.args
        if isinstance(node, ast.ClassDef) and node.name == name:
            made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            return made[0].args
    raise AssertionError(f"a model of the zoo without {name}")


if __name__ == "__main__":
    print(render_tables(), end="")
