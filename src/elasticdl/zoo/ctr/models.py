"""All models of clicks by name: what each is, whose paper, how to build it from a layout. No framework to list them.

model = build("deepfm", layout, columns=16)
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from elasticdl.errors import ModelError
from elasticdl.features.layout import Layout
from elasticdl.model.terms import nearest

IN_KERAS = "keras/"


@dataclass(frozen=True, slots=True)
class Known:
    """A model of the zoo. Called with a layout and the model's own parameters, it builds one."""

    name: str  # its file has it, too; keras/NAME is written in Keras
    kind: str  # its class
    words: str
    paper: str

    @property
    def is_keras(self) -> bool:
        return self.name.startswith(IN_KERAS)

    @property
    def file(self) -> str:
        """Within the zoo."""
        return f"ctr_keras/{self.name.removeprefix(IN_KERAS)}.py" if self.is_keras else f"ctr/{self.name}.py"

    def __call__(self, layout: Layout, **params: Any) -> Any:
        self._check(params)
        return self._class(layout, **params)

    @property
    def params(self) -> dict[str, Any]:
        """The names of what it takes, with their defaults."""
        found = inspect.signature(self._class).parameters.values()
        return {one.name: one.default for one in found if one.kind is one.KEYWORD_ONLY}

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of what it takes, read in its source: for those who do not want torch."""
        tree = ast.parse((Path(__file__).parents[1] / self.file).read_text(encoding="utf-8"))
        (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == self.kind)
        (init,) = (node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        return tuple(one.arg for one in init.args.kwonlyargs)

    @property
    def _class(self) -> Any:
        return getattr(import_module(f"elasticdl.zoo.{self.file.removesuffix('.py').replace('/', '.')}"), self.kind)

    def _check(self, params: dict[str, Any]) -> None:
        known = self.params
        for key in params:
            if key not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                raise ModelError(f"{self.name}: no parameter {key!r}; {takes}{nearest(key, known)}")


_TORCH = (
    Known("lr", "LogisticRegression", "a weight for each value", "Richardson et al., WWW 2007"),
    Known("fm", "FM", "weights, and products of factors in pairs", "Rendle, ICDM 2010"),
    Known("wide_deep", "WideDeep", "a linear model beside a deep net", "Cheng et al., DLRS 2016, arXiv:1606.07792"),
    Known("deepfm", "DeepFM", "FM and a deep net over the same factors", "Guo et al., IJCAI 2017, arXiv:1703.04247"),
    Known("xdeepfm", "XDeepFM", "products of any order, field by field", "Lian et al., KDD 2018, arXiv:1803.05170"),
    Known("dcn", "DCN", "products of any order, value by value", "Wang et al., ADKDD 2017, arXiv:1708.05123"),
    Known("dcn_v2", "DCNV2", "DCN with whole matrices", "Wang et al., WWW 2021, arXiv:2008.13535"),
    Known("dlrm", "DLRM", "a net over the dot products of all pairs", "Naumov et al., 2019, arXiv:1906.00091"),
    Known("autoint", "AutoInt", "fields attend to each other", "Song et al., CIKM 2019, arXiv:1810.11921"),
    Known("finalmlp", "FinalMLP", "two gated nets and a bilinear form", "Mao et al., AAAI 2023, arXiv:2304.00902"),
    Known("din", "DIN", "attention over what a person did before", "Zhou et al., KDD 2018, arXiv:1706.06978"),
)

_KERAS = tuple(
    Known(f"{IN_KERAS}{one.name}", one.kind, one.words, one.paper)
    for one in _TORCH
    if one.name in ("wide_deep", "deepfm", "xdeepfm", "dcn")
)
ALL = (*_TORCH, *_KERAS)
KNOWN: dict[str, Known] = {one.name: one for one in ALL}


def build(name: str, layout: Layout, **params: Any) -> Any:
    """The model of this name, an nn.Module or a keras.Model. ModelError, with the nearest, for one not known."""
    if name not in KNOWN:
        raise ModelError(f"model: the zoo has no {name!r}; it has {', '.join(KNOWN)}{nearest(name, KNOWN)}")
    return KNOWN[name](layout, **params)
