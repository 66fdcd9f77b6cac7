"""All models of the zoo by name, read from their source without importing torch or TensorFlow.

`python -m elasticdl.zoo.catalog` prints the tables of docs/model-zoo.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from elasticdl.ctr.models import catalog as ctr_models
from elasticdl.errors import SpecError
from elasticdl.model.functions import suggest_nearest

ZOO_DIRECTORY = Path(__file__).parent
CHECKOUT_PATH = "src/elasticdl/zoo"
"""How the commands in model files name the directory of the zoo."""

CTR, IMAGES, TEXT, TABULAR, OTHER = "ctr", "images", "text", "tabular", "other"


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A model as `elasticdl zoo` describes it."""

    name: str
    group: str
    framework: str
    file: str  # below the package elasticdl
    function: str  # the function or class that builds the model
    description: str
    paper: str = ""

    @property
    def path(self) -> Path:
        return ZOO_DIRECTORY.parent / self.file

    @property
    def params(self) -> dict[str, Any]:
        """The parameters with their defaults."""
        arguments = _find_arguments(self._parse(), self.function)
        positional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        pairs = [*zip(positional, arguments.defaults, strict=True)]
        pairs += [
            (argument, default)
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default
        ]
        return {argument.arg: ast.literal_eval(default) for argument, default in pairs}

    @property
    def commands(self) -> list[str]:
        """The commands that train the model, as they can be typed here; a model file has them in its docstring."""
        if self.group == CTR:
            init = f"elasticdl ctr init clicks.csv --label clicked --model {self.name}"
            return [init, "elasticdl train ctr.yaml"]
        docstring = ast.get_docstring(self._parse()) or ""
        commands = re.findall(r"(?:^|: )((?:python -m|elasticdl) .*)", docstring, re.MULTILINE)
        local = [" ".join(command.split()).replace(CHECKOUT_PATH, str(ZOO_DIRECTORY)) for command in commands]
        return sorted(local, key=lambda command: not command.startswith("python"))  # making the data comes first

    def to_dict(self) -> dict[str, str]:
        return {
            "name": self.name, "group": self.group, "framework": self.framework, "description": self.description,
            "paper": self.paper,
        }  # fmt: skip

    def _parse(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))


MODELS: tuple[ZooModel, ...] = (
    *(
        ZooModel(
            model.name, CTR, "keras" if model.is_keras else "torch", f"ctr/models/{model.file}", model.class_name,
            model.description, model.paper,
        )
        for model in ctr_models.ALL_MODELS
    ),
    ZooModel("digits", IMAGES, "torch", "zoo/digits/digits.py", "forward", "a small net for digits of 8 x 8 pixels"),
    ZooModel("mnist", IMAGES, "torch", "zoo/mnist/mnist.py", "forward", "LeNet-5 for digits", "LeCun et al., 1998"),
    ZooModel(
        "mnist_functional", IMAGES, "keras", "zoo/mnist/functional.py", "forward", "digits, by the functional API"
    ),
    ZooModel(
        "mnist_subclass", IMAGES, "keras", "zoo/mnist/subclass.py", "Digits", "digits, by a subclass of keras.Model"
    ),
    ZooModel(
        "cifar10", IMAGES, "keras", "zoo/cifar10/resnet.py", "forward", "ResNet-20 for images of 32 x 32 pixels",
        "He et al., CVPR 2016, arXiv:1512.03385",
    ),
    ZooModel(
        "text", TEXT, "torch", "zoo/text/text.py", "forward", "a transformer that writes, letter by letter",
        "Vaswani et al., NeurIPS 2017, arXiv:1706.03762",
    ),
    ZooModel(
        "census", TABULAR, "keras", "zoo/census/wide_deep.py", "forward", "wide & deep on a census, raw columns in",
        "Cheng et al., DLRS 2016, arXiv:1606.07792",
    ),
    ZooModel(
        "paced", OTHER, "torch", "zoo/paced/paced.py", "forward", "batches that take as long as you say, for tests"
    ),
)  # fmt: skip

MODELS_BY_NAME: dict[str, ZooModel] = {model.name: model for model in MODELS}


def find_model(name: str) -> ZooModel:
    """The model called `name`. Raises SpecError, with the nearest name, if there is none."""
    if name not in MODELS_BY_NAME:
        raise SpecError(
            f"the zoo has no {name!r}{suggest_nearest(name, MODELS_BY_NAME) or '; `elasticdl zoo list` names all'}"
        )
    return MODELS_BY_NAME[name]


def group_models() -> Iterator[tuple[str, list[ZooModel]]]:
    """The models by group and framework, each with a title such as `images, torch`."""
    for (group, framework), models in groupby(MODELS, key=lambda model: (model.group, model.framework)):
        yield f"{group}, {'Keras' if framework == 'keras' else framework}", list(models)


def render_tables() -> str:
    """The tables of docs/model-zoo.md."""
    parts = []
    for title, models in group_models():
        rows = [f"| `{model.name}` | {model.description} | {model.paper} | `{model.file}` |" for model in models]
        parts.append(
            "\n".join([f"### {title}", "", "| model | description | paper | file |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _find_arguments(tree: ast.Module, name: str) -> ast.arguments:
    """The arguments of the function `name`, or of `__init__` of the class `name`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node.args
        if isinstance(node, ast.ClassDef) and node.name == name:
            return next(
                item.args for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"
            )
    raise AssertionError(f"a model of the zoo has no {name}")


if __name__ == "__main__":
    print(render_tables(), end="")
