"""All models of clicks by name: what each is, whose paper, and how to build it from a layout. Needs no torch to list.

model = build("deepfm", layout, columns=16)
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.errors import ModelError
from elasticdl.features.layout import Layout
from elasticdl.model.terms import nearest

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Known:
    """A model of the zoo. Called with a layout and the model's own parameters, it builds one."""

    name: str  # its file has it, too
    kind: str  # its class
    words: str
    paper: str

    def __call__(self, layout: Layout, **params: Any) -> nn.Module:
        self._check(params)
        model: nn.Module = self._class(layout, **params)
        return model

    @property
    def params(self) -> dict[str, Any]:
        """The names of what it takes, with their defaults."""
        found = inspect.signature(self._class).parameters.values()
        return {one.name: one.default for one in found if one.kind is one.KEYWORD_ONLY}

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of what it takes, read in its source: for those who do not want torch."""
        tree = ast.parse((Path(__file__).parent / f"{self.name}.py").read_text(encoding="utf-8"))
        (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == self.kind)
        (init,) = (node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        return tuple(one.arg for one in init.args.kwonlyargs)

    @property
    def _class(self) -> Any:
        return getattr(import_module(f"elasticdl.zoo.ctr.{self.name}"), self.kind)

    def _check(self, params: dict[str, Any]) -> None:
        known = self.params
        for key in params:
            if key not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                raise ModelError(f"{self.name}: no parameter {key!r}; {takes}{nearest(key, known)}")


ALL = (
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

KNOWN: dict[str, Known] = {one.name: one for one in ALL}


def build(name: str, layout: Layout, **params: Any) -> nn.Module:
    """The model of this name. Raises ModelError, with the nearest name, for one that is not known."""
    if name not in KNOWN:
        raise ModelError(f"model: the zoo has no {name!r}; it has {', '.join(KNOWN)}{nearest(name, KNOWN)}")
    return KNOWN[name](layout, **params)
