"""features.yaml as text, with the reason beside every column and all treatments explained at the top. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from elasticdl.features import file, treatments
from elasticdl.features.proposal import Proposal
from elasticdl.features.statistics import Statistics

_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def written(statistics: Statistics, proposals: Mapping[str, Proposal], statistics_name: str) -> str:
    """A file that `features.file` reads. Whatever comes from the data is quoted, or stands in a comment as one line."""
    part = "" if statistics.sampled == 1 else f", a sample of {statistics.sampled:g} of all"
    lines = [
        f"# What becomes of each column of {_one_line(statistics.source)} ({statistics.rows:,} rows{part}).",
        "# Proposed by `elasticdl features analyze`; change what you know better.",
        "# A column has one treatment, or a list of them:",
        "#",
        *(f"#   {word:<15}{kind.summary}" for word, kind in treatments.KNOWN.items()),
        "",
        f"version: {file.VERSION}",
        f"label: {_scalar(statistics.label or '')}",
        f"statistics: {_scalar(statistics_name)}",
        "",
        "columns:",
    ]
    for name, proposal in proposals.items():
        lines += [f"  # {_one_line(proposal.reason)}", f"  {_scalar(name)}: {_treatments(proposal.treatments)}"]
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


def _treatments(texts: tuple[str, ...]) -> str:
    quoted = [_scalar(text) if set(text) & set(',"[]#') else text for text in texts]
    return quoted[0] if len(quoted) == 1 else f"[{', '.join(quoted)}]"


def _scalar(text: str) -> str:
    """As YAML: bare where nothing in it could be taken for something else, else quoted as in JSON."""
    is_bare = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text) and text.lower() not in _YAML_WORDS
    return text if is_bare else '"' + "".join(_letter(letter) for letter in text) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
