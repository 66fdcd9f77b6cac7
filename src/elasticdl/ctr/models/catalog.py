"""All CTR models by name: a description, the paper, and how to build each from a layout.

No framework is imported to list them.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from elasticdl.errors import ModelError
from elasticdl.features.layout import FeatureLayout
from elasticdl.model.functions import suggest_nearest

MODELS_DIRECTORY = Path(__file__).parent
KERAS_PREFIX = "keras/"


@dataclass(frozen=True, slots=True)
class CtrModelInfo:
    """A CTR model. Called with a layout and the model's own parameters, it builds the model."""

    name: str  # also of its file; keras/NAME is written in Keras
    class_name: str
    description: str
    paper: str

    @property
    def is_keras(self) -> bool:
        return self.name.startswith(KERAS_PREFIX)

    @property
    def file(self) -> str:
        """The path of its file below `MODELS_DIRECTORY`."""
        return f"{self.name}.py"

    def __call__(self, layout: FeatureLayout, **params: Any) -> Any:
        self._check(params)
        return self._class(layout, **params)

    @property
    def params(self) -> dict[str, Any]:
        """The names of the model's parameters, with their defaults."""
        parameters = inspect.signature(self._class).parameters.values()
        return {
            parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        }

    @property
    def declared_params(self) -> tuple[str, ...]:
        """The names of the model's parameters, read from its source, so that torch is not imported."""
        tree = ast.parse((MODELS_DIRECTORY / self.file).read_text(encoding="utf-8"))
        (model_class,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == self.class_name)
        (init,) = (node for node in model_class.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        return tuple(argument.arg for argument in init.args.kwonlyargs)

    @property
    def _class(self) -> Any:
        return getattr(import_module(f"elasticdl.ctr.models.{self.name.replace('/', '.')}"), self.class_name)

    def _check(self, params: dict[str, Any]) -> None:
        known_params = self.params
        for key in params:
            if key not in known_params:
                takes = f"it takes {', '.join(known_params)}" if known_params else "it takes none"
                raise ModelError(f"{self.name}: no parameter {key!r}; {takes}{suggest_nearest(key, known_params)}")


_TORCH = (
    CtrModelInfo("lr", "LogisticRegression", "a weight for each value", "Richardson et al., WWW 2007"),
    CtrModelInfo("fm", "FM", "weights, and products of factors in pairs", "Rendle, ICDM 2010"),
    CtrModelInfo(
        "wide_deep", "WideDeep", "a linear model beside a deep net", "Cheng et al., DLRS 2016, arXiv:1606.07792"
    ),
    CtrModelInfo(
        "deepfm", "DeepFM", "FM and a deep net over the same factors", "Guo et al., IJCAI 2017, arXiv:1703.04247"
    ),
    CtrModelInfo(
        "xdeepfm", "XDeepFM", "products of any order, field by field", "Lian et al., KDD 2018, arXiv:1803.05170"
    ),
    CtrModelInfo("dcn", "DCN", "products of any order, value by value", "Wang et al., ADKDD 2017, arXiv:1708.05123"),
    CtrModelInfo("dcn_v2", "DCNV2", "DCN with whole matrices", "Wang et al., WWW 2021, arXiv:2008.13535"),
    CtrModelInfo("dlrm", "DLRM", "a net over the dot products of all pairs", "Naumov et al., 2019, arXiv:1906.00091"),
    CtrModelInfo("autoint", "AutoInt", "fields attend to each other", "Song et al., CIKM 2019, arXiv:1810.11921"),
    CtrModelInfo(
        "finalmlp", "FinalMLP", "two gated nets and a bilinear form", "Mao et al., AAAI 2023, arXiv:2304.00902"
    ),
    CtrModelInfo("din", "DIN", "attention over what the user did before", "Zhou et al., KDD 2018, arXiv:1706.06978"),
)

_KERAS = tuple(
    CtrModelInfo(f"{KERAS_PREFIX}{model.name}", model.class_name, model.description, model.paper)
    for model in _TORCH
    if model.name in ("wide_deep", "deepfm", "xdeepfm", "dcn")
)
ALL_MODELS = (*_TORCH, *_KERAS)
MODELS_BY_NAME: dict[str, CtrModelInfo] = {model.name: model for model in ALL_MODELS}


def build_model(name: str, layout: FeatureLayout, **params: Any) -> Any:
    """Builds the model called `name`, an nn.Module or a keras.Model. Raises ModelError if there is none."""
    if name not in MODELS_BY_NAME:
        raise ModelError(
            f"model: the zoo has no {name!r}; it has {', '.join(MODELS_BY_NAME)}{suggest_nearest(name, MODELS_BY_NAME)}"
        )
    return MODELS_BY_NAME[name](layout, **params)
