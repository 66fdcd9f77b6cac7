"""Writes a reference page for each transform from its docstring: `python -m elasticdl.features.docs docs/features`."""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

from elasticdl.features.transforms import ALL_TRANSFORMS, Transform

_COLUMNS = 100
_HEAD = """# Transforms

A transform is a pure function of the values of a column. Each has one definition in NumPy and Arrow
(`from elasticdl.features import Normalizer`), a Keras layer (`elasticdl.keras.features`) and a
torch module (`elasticdl.features.torch`) of the same name, which give the same results to the bit.
A definition that is called with a tensor of a framework acts as its layer or module.

```python
from elasticdl.features import Hashing, Normalizer, use_statistics

Normalizer(1.0, 2.0)([3, 4])  # NumPy, Arrow, lists; ragged and sparse columns keep their form
Normalizer(1.0, 2.0)(torch.tensor([3]))  # in torch: can be exported if the column has numbers
Normalizer(1.0, 2.0)(keras.Input((1,)))  # a layer of the functional API: is in the SavedModel

with use_statistics("statistics.json"):  # from `elasticdl features analyze`
    Normalizer.from_statistics("I1")
```

A null is NaN in a column of numbers and the empty text in a column of text. A subnormal number is
treated as zero everywhere, because TensorFlow does so, and a computed zero is positive; the bits of
a NaN are not specified. Torch has no tensors of text: its modules take text as
lists, NumPy or Arrow columns, outside of exports.

`SparseEmbedding` (one vector for all ids of a row; sum, mean or sqrtn) exists only in
`elasticdl.keras.features` and `elasticdl.features.torch`, because it has weights. The feature
columns of the original ElasticDL are in `elasticdl.keras.features`:
`categorical_column(key, transformation)`, `concatenated_categorical_column(columns)` and
`embedding_column(column, dimension, combiner, initializer)`.

| name | description |
|---|---|
"""


def render_pages() -> dict[str, str]:
    """Returns the text of each page by its file name. Pages are generated from docstrings; do not edit them."""
    pages = {f"{kind.__name__}.md": render_page(kind) for kind in ALL_TRANSFORMS}
    rows = [f"| [{kind.__name__}]({kind.__name__}.md) | {_summary_line(kind)} |\n" for kind in ALL_TRANSFORMS]
    return {"README.md": _HEAD + "".join(rows), **pages}


def render_page(kind: type[Transform]) -> str:
    parts = [
        f"# {kind.__name__}\n\n```python\n{_call_signature(kind.__name__, kind)}\n```\n",
        _format_body(inspect.getdoc(kind) or ""),
    ]
    if factory := getattr(kind, "from_statistics", None):
        call = _call_signature(f"{kind.__name__}.from_statistics", factory)
        parts.append(f"## From statistics\n\n```python\n{call}\n```\n\n{_format_body(inspect.getdoc(factory) or '')}")
    return "\n".join(parts)


def _call_signature(name: str, function: Any) -> str:
    """Returns the signature as it is called, without types."""
    parameters = inspect.signature(function).parameters.values()
    return f"{name}{inspect.Signature([each.replace(annotation=each.empty) for each in parameters])}".replace("'", '"')


def _summary_line(kind: type[Transform]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0].replace("|", r"\|")


def _format_body(text: str) -> str:
    """Wraps paragraphs at 100 columns and marks examples as code."""
    blocks = [
        f"```python\n{block}\n```"
        if block.startswith(">>>")
        else textwrap.fill(block, _COLUMNS, break_long_words=False, break_on_hyphens=False)
        for block in text.split("\n\n")
    ]
    return "\n\n".join(blocks) + "\n"


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in render_pages().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
