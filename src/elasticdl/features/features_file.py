"""features.yaml, which names the transforms of each column: parsed, checked, and rendered with reasons as comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.features import transform_specs
from elasticdl.features.proposal import Proposal
from elasticdl.features.statistics import ColumnKind, Statistics
from elasticdl.features.transform_specs import CrossSpec, DropSpec, TransformSpec
from elasticdl.spec.parsing import parse_yaml

FEATURES_FILE_VERSION = 1
_KEYS = ("version", "label", "statistics", "columns", "crosses", "groups")


@dataclass(frozen=True)
class FeaturesFile:
    """The content of features.yaml. Columns keep the order of the data set."""

    label: str
    statistics: str  # a file beside this one
    columns: Mapping[str, tuple[TransformSpec, ...]]
    crosses: tuple[CrossSpec, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def override(self, changes: Mapping[str, Any], where: str) -> FeaturesFile:
        """Replaces the transforms of some columns: by name, by a pattern such as `C*`, or by group; later ones win."""
        columns = dict(self.columns)
        crosses = self.crosses
        for key, value in changes.items():
            path = f"{where}.{key}"
            if key == "crosses":
                crosses = _parse_crosses(value, path)
                continue
            for name in self._match_columns(key, path):
                columns[name] = _parse_transforms(value, path)
        changed = replace(self, columns=columns, crosses=crosses)
        changed._check(where)
        return changed

    def _match_columns(self, key: str, where: str) -> list[str]:
        if key in self.columns:
            return [key]
        if key in self.groups:
            return list(self.groups[key])
        names = [name for name in self.columns if fnmatchcase(name, key)]
        if not names:
            raise SpecError(f"{where}: no column, group or pattern of columns" + _near_hint(key, self.columns))
        return names

    def _check(self, where: str) -> None:
        for cross in self.crosses:
            for name in cross.columns:
                if name not in self.columns:
                    raise SpecError(f"{where}: {cross}: no column {name!r}" + _near_hint(name, self.columns))
        for group, names in self.groups.items():
            for name in names:
                if name not in self.columns:
                    raise SpecError(f"{where}.groups.{group}: no column {name!r}" + _near_hint(name, self.columns))
        if self.label in self.columns:
            raise SpecError(f"{where}: {self.label!r} is the label and cannot be a feature; take it out of columns")

    def check_against(self, statistics: Statistics, where: str) -> None:
        """Raises SpecError if the statistics belong to another data set, or a transform does not fit its column."""
        absent = [name for name in self.columns if name not in statistics.columns]
        if absent:
            raise SpecError(
                f"{where}: no statistics of {', '.join(absent[:5])}: the file belongs to another data set than "
                f"{statistics.source}; run `elasticdl features analyze` on this one"
            )
        for name, specs in self.columns.items():
            kind = statistics.columns[name].kind
            for spec in specs:
                if spec.accepts == "number" and kind is not ColumnKind.NUMBER:
                    raise SpecError(
                        f"{where}.columns.{name}: {spec} takes numbers, and this column has {kind}; "
                        f"e.g. hashing(num_bins=1000)"
                    )

    @property
    def used_columns(self) -> tuple[str, ...]:
        """The columns that at least one feature is computed from."""
        crossed = {name for cross in self.crosses for name in cross.columns}
        return tuple(
            name
            for name, specs in self.columns.items()
            if name in crossed or any(not isinstance(spec, DropSpec) for spec in specs)
        )


def load_features_file(path: Path) -> FeaturesFile:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise SpecError(f"{path}: expected a features.yaml: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path}: expected a features.yaml in UTF-8: {exc}") from exc
    return parse_features_file(text, str(path))


def parse_features_file(text: str, where: str) -> FeaturesFile:
    document = parse_yaml(text, where)
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise SpecError(
            f"{where}: expected the keys {', '.join(_KEYS)}; `elasticdl features analyze` writes such a file"
        )
    for key in document:
        if key not in _KEYS:
            raise SpecError(f"{where}: no key {key!r}" + _near_hint(str(key), _KEYS))
    version = document.get("version")
    if version != FEATURES_FILE_VERSION:
        raise SpecError(f"{where}: expected version: {FEATURES_FILE_VERSION}, received {version!r}; analyze again")
    groups = document.get("groups") or {}
    if not isinstance(groups, dict) or not all(isinstance(names, list) for names in groups.values()):
        raise SpecError(f"{where}.groups: expected lists of columns by name")
    parsed = FeaturesFile(
        label=str(document.get("label") or ""),
        statistics=str(document.get("statistics") or "statistics.json"),
        columns={
            str(name): _parse_transforms(value, f"{where}.columns.{name}")
            for name, value in document["columns"].items()
        },
        crosses=_parse_crosses(document.get("crosses") or [], f"{where}.crosses"),
        groups={str(group): tuple(str(name) for name in names) for group, names in groups.items()},
    )
    if not parsed.label:
        raise SpecError(f"{where}: expected label: the column to predict")
    parsed._check(where)
    return parsed


def _parse_transforms(value: Any, where: str) -> tuple[TransformSpec, ...]:
    """Parses one transform or a list of them."""
    texts = _split_texts(value)
    if not texts:
        raise SpecError(f"{where}: expected a transform such as hashing(num_bins=1000), or a list of them")
    specs = []
    for text in texts:
        try:
            specs.append(transform_specs.parse_transform(text))
        except SpecError as exc:
            raise SpecError(f"{where}: {exc}") from exc
    if any(isinstance(spec, CrossSpec) for spec in specs):
        raise SpecError(f"{where}: a cross takes several columns; it belongs in `crosses`")
    if len(set(specs)) < len(specs):
        raise SpecError(f"{where}: the same transform is listed twice")
    return tuple(specs)


def _split_texts(value: Any) -> list[str]:
    """Splits one text with commas, or a list of texts, into transforms; [] if it is neither.

    YAML splits [cross(C1, C2)] at the comma, so the parts are joined again and split only outside of brackets.
    """
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) for part in parts):
        return []
    texts, depth, text, quote = [], 0, "", ""
    for letter in ", ".join(parts):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth <= 0 and not quote:
            texts.append(text)
            text = ""
        else:
            text += letter
    return [text.strip() for text in (*texts, text)] if parts else []


def _parse_crosses(value: Any, where: str) -> tuple[CrossSpec, ...]:
    crosses = []
    for text in _split_texts(value):
        spec = transform_specs.parse_transform(text)
        if not isinstance(spec, CrossSpec):
            raise SpecError(f"{where}: expected crosses such as cross(C1, C2), received {text!r}")
        crosses.append(spec)
    return tuple(crosses)


def _near_hint(name: str, candidates: Iterable[str]) -> str:
    names = list(candidates)
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names[:12])}"


_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def render_features_file(statistics: Statistics, proposals: Mapping[str, Proposal], statistics_name: str) -> str:
    """Renders a file that `parse_features_file` reads. Texts from the data are quoted, or a comment of one line."""
    fraction = statistics.sample_fraction
    sample = "" if fraction == 1 else f", a sample of {fraction:g} of all"
    lines = [
        f"# The transforms of each column of {_one_line(statistics.source)} ({statistics.rows:,} rows{sample}).",
        "# Proposed by `elasticdl features analyze`; change what you know better.",
        "# A column has one transform, or a list of them:",
        "#",
        *(f"#   {name:<19}{spec.summary}" for name, spec in transform_specs.TRANSFORM_SPECS.items()),
        "",
        f"version: {FEATURES_FILE_VERSION}",
        f"label: {_yaml_scalar(statistics.label or '')}",
        f"statistics: {_yaml_scalar(statistics_name)}",
        "",
        "columns:",
    ]
    for name, proposal in proposals.items():
        lines += [
            f"  # {_one_line(proposal.reason)}",
            f"  {_yaml_scalar(name)}: {_render_transforms(proposal.transforms)}",
        ]
    lines += [
        "",
        "# Columns that matter together, e.g. a user's city and the shop:",
        "# crosses:",
        "#   - cross(C1, C2, num_bins=100000)",
        "# Names for several columns, for models that treat them alike:",
        "# groups:",
        "#   user: [age, city]",
    ]
    return "\n".join(lines) + "\n"


def _render_transforms(texts: tuple[str, ...]) -> str:
    quoted = [_yaml_scalar(text) if set(text) & set(',"[]#') else text for text in texts]
    return quoted[0] if len(quoted) == 1 else f"[{', '.join(quoted)}]"


def _yaml_scalar(text: str) -> str:
    """Renders a text as YAML: bare if it cannot be read as anything else, otherwise quoted as in JSON."""
    is_bare = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text) and text.lower() not in _YAML_WORDS
    return text if is_bare else '"' + "".join(_escape_letter(letter) for letter in text) + '"'


def _escape_letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
