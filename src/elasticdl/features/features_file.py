"""features.yaml, which names the transforms of each column: parsed, checked, and rendered with reasons as comments."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    """Columns keep the order of the data set."""

    label: str
    statistics: str  # a file beside this one
    columns: Mapping[str, tuple[TransformSpec, ...]]
    crosses: tuple[CrossSpec, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def override(self, changes: Mapping[str, Any], where: str) -> FeaturesFile:
        """With other treatments for some columns: by name, by a pattern as `C*`, by a group; later ones win."""
        columns = dict(self.columns)
        crosses = self.crosses
        for key, text in changes.items():
            place = f"{where}.{key}"
            if key == "crosses":
                crosses = _parse_crosses(text, place)
                continue
            for name in self._meant(key, place):
                columns[name] = _parse_transforms(text, place)
        changed = replace(self, columns=columns, crosses=crosses)
        changed._check(where)
        return changed

    def _meant(self, key: str, place: str) -> list[str]:
        if key in self.columns:
            return [key]
        if key in self.groups:
            return list(self.groups[key])
        found = [name for name in self.columns if fnmatchcase(name, key)]
        if not found:
            raise SpecError(f"{place}: no column, group or pattern of columns" + _near_hint(key, self.columns))
        return found

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
        """SpecError where the statistics are of another data set, or a treatment does not fit a column's kind."""
        absent = [name for name in self.columns if name not in statistics.columns]
        if absent:
            raise SpecError(
                f"{where}: no statistics of {', '.join(absent[:5])}: the file is of another data set than "
                f"{statistics.source}; run `elasticdl features analyze` on this one"
            )
        for name, chosen in self.columns.items():
            kind = statistics.columns[name].kind
            for one in chosen:
                if one.accepts == "number" and kind is not ColumnKind.NUMBER:
                    raise SpecError(
                        f"{where}.columns.{name}: {one} takes numbers, and this column has {kind}; e.g. hash(bins=1000)"
                    )

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Columns that something becomes of."""
        crossed = {name for cross in self.crosses for name in cross.columns}
        return tuple(
            name
            for name, chosen in self.columns.items()
            if name in crossed or any(not isinstance(one, DropSpec) for one in chosen)
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
    found = parse_yaml(text, where)
    if not isinstance(found, dict) or not isinstance(found.get("columns"), dict):
        raise SpecError(
            f"{where}: expected the keys {', '.join(_KEYS)}; `elasticdl features analyze` writes such a file"
        )
    for key in found:
        if key not in _KEYS:
            raise SpecError(f"{where}: no key {key!r}" + _near_hint(str(key), _KEYS))
    if found.get("version") != FEATURES_FILE_VERSION:
        raise SpecError(
            f"{where}: expected version: {FEATURES_FILE_VERSION}, received {found.get('version')!r}; analyze again"
        )
    groups = found.get("groups") or {}
    if not isinstance(groups, dict) or not all(isinstance(names, list) for names in groups.values()):
        raise SpecError(f"{where}.groups: expected lists of columns by name")
    made = FeaturesFile(
        label=str(found.get("label") or ""),
        statistics=str(found.get("statistics") or "statistics.json"),
        columns={
            str(name): _parse_transforms(given, f"{where}.columns.{name}") for name, given in found["columns"].items()
        },
        crosses=_parse_crosses(found.get("crosses") or [], f"{where}.crosses"),
        groups={str(name): tuple(str(one) for one in names) for name, names in groups.items()},
    )
    if not made.label:
        raise SpecError(f"{where}: expected label: the column to predict")
    made._check(where)
    return made


def _parse_transforms(given: Any, where: str) -> tuple[TransformSpec, ...]:
    """One, or a list of them."""
    texts = _split_texts(given)
    if not texts:
        raise SpecError(f"{where}: expected a transformation such as hash(bins=1000), or a list of them")
    made = []
    for text in texts:
        try:
            made.append(transform_specs.parse_transform(text))
        except SpecError as exc:
            raise SpecError(f"{where}: {exc}") from exc
    if any(isinstance(one, CrossSpec) for one in made):
        raise SpecError(f"{where}: a cross is of several columns; it belongs into `crosses`")
    if len(set(made)) < len(made):
        raise SpecError(f"{where}: the same transformation stands twice")
    return tuple(made)


def _split_texts(given: Any) -> list[str]:
    """One text, several with commas between, or a list of them. [] where it is none of these.

    YAML cuts [cross(C1, C2)] at the comma: so the parts are put together again, and cut outside of brackets only.
    """
    parts = given if isinstance(given, list) else [given]
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
    return [one.strip() for one in (*texts, text)] if parts else []


def _parse_crosses(given: Any, where: str) -> tuple[CrossSpec, ...]:
    made = []
    for text in _split_texts(given):
        one = transform_specs.parse_transform(text)
        if not isinstance(one, CrossSpec):
            raise SpecError(f"{where}: expected crosses such as cross(C1, C2), received {text!r}")
        made.append(one)
    return tuple(made)


def _near_hint(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(list(known)[:12])}"


_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def render_features_file(statistics: Statistics, proposals: Mapping[str, Proposal], statistics_name: str) -> str:
    """A file that `features.file` reads. Whatever comes from the data is quoted, or stands in a comment as one line."""
    part = "" if statistics.sampled == 1 else f", a sample of {statistics.sampled:g} of all"
    lines = [
        f"# What becomes of each column of {_one_line(statistics.source)} ({statistics.rows:,} rows{part}).",
        "# Proposed by `elasticdl features analyze`; change what you know better.",
        "# A column has one treatment, or a list of them:",
        "#",
        *(f"#   {word:<15}{kind.summary}" for word, kind in transform_specs.TRANSFORM_SPECS.items()),
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
        "#   - cross(C1, C2, bins=100000)",
        "# Names for several columns, for models that treat them alike:",
        "# groups:",
        "#   user: [age, city]",
    ]
    return "\n".join(lines) + "\n"


def _render_transforms(texts: tuple[str, ...]) -> str:
    quoted = [_yaml_scalar(text) if set(text) & set(',"[]#') else text for text in texts]
    return quoted[0] if len(quoted) == 1 else f"[{', '.join(quoted)}]"


def _yaml_scalar(text: str) -> str:
    """As YAML: bare where nothing in it could be taken for something else, else quoted as in JSON."""
    is_bare = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text) and text.lower() not in _YAML_WORDS
    return text if is_bare else '"' + "".join(_escape_letter(letter) for letter in text) + '"'


def _escape_letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
