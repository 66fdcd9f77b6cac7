"""Traces by what somebody types: a file of any known format, or made-up jobs; with parameters after a colon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path

from elasticdl.errors import DataError, SpecError
from elasticdl.sim import elastic_trace, philly, synthetic, tiresias_trace, workload
from elasticdl.sim.plain import Scaling
from elasticdl.sim.synthetic import Arrivals
from elasticdl.sim.trace import TraceJob

SYNTHETIC = "synthetic"
_BY_COLUMNS = {
    "pollux": workload.COLUMNS,
    "philly": philly.COLUMNS,
    "tiresias": tiresias_trace.COLUMNS,
    "elastic": elastic_trace.COLUMNS,
}
_SCALING = tuple(one.name for one in fields(Scaling))
_ARRIVALS = tuple(one.name for one in fields(Arrivals))
_PARAMETERS = {
    "pollux": (),
    "philly": (*_SCALING, "cluster"),
    "tiresias": _SCALING,
    "elastic": ("efficiency",),
    "gavel": _ARRIVALS,
    SYNTHETIC: (*_SCALING, *_ARRIVALS),
}


@dataclass(frozen=True)
class Source:
    """A trace that can be read any number of times: once for each policy, in whatever process."""

    form: str  # pollux, philly, tiresias, elastic, gavel, synthetic
    path: Path = field(default_factory=Path)
    profiles: Path = field(default_factory=Path)  # where the applications of a workload are measured
    scaling: Scaling = field(default_factory=Scaling)
    arrivals: Arrivals = field(default_factory=Arrivals)
    cluster: str = ""
    limit: int = 0  # 0: all jobs

    def jobs(self, *, adapts_batch: bool = True, needs_oracle: bool = False) -> Iterator[TraceJob]:
        found = self._all(adapts_batch, needs_oracle)
        return islice(found, self.limit) if self.limit else found

    def kinds(self) -> list[str]:
        """Kinds of devices its jobs were measured on; []: they run on any."""
        from elasticdl.sim import gavel_table

        return gavel_table.load(self.path).kinds if self.form == "gavel" else []

    def _all(self, adapts_batch: bool, needs_oracle: bool) -> Iterator[TraceJob]:
        if self.form == "pollux":
            known = workload.applications(self.profiles)
            return workload.read(self.path, known, adapts_batch=adapts_batch, needs_oracle=needs_oracle)
        if self.form == "philly":
            return philly.read(self.path, self.scaling, self.cluster)
        if self.form == "tiresias":
            return tiresias_trace.read(self.path, self.scaling)
        if self.form == "elastic":
            return elastic_trace.read(self.path, self.scaling)
        if self.form == "gavel":
            from elasticdl.sim import gavel_jobs, gavel_table

            return gavel_jobs.jobs(gavel_table.load(self.path), self.arrivals)
        return synthetic.jobs(self.arrivals, self.scaling)


def opened(text: str, profiles: Path | None = None, limit: int = 0) -> Source:
    """`FILE`, `FILE:KEY=VALUE,…` or `synthetic:KEY=VALUE,…`. The format is told by the file's first line."""
    name, given = _split(text)
    path = Path(name)
    form = SYNTHETIC if name == SYNTHETIC else _form(path)
    if unknown := sorted(set(given) - set(_PARAMETERS[form])):
        allowed = ", ".join(_PARAMETERS[form]) or "none"
        raise SpecError(f"--trace {text}: a {form} trace has the parameters {allowed}; received {', '.join(unknown)}")
    return Source(
        form,
        path,
        profiles or path.resolve().parent.parent / "traces",
        Scaling(**_numbers(text, given, Scaling)),
        Arrivals(**_numbers(text, given, Arrivals)),  # type: ignore[arg-type]
        given.get("cluster", ""),
        limit,
    )


def _split(text: str) -> tuple[str, dict[str, str]]:
    name, colon, rest = text.rpartition(":")
    if not colon or "=" not in rest.partition(",")[0]:
        return text, {}
    pairs = [part.partition("=") for part in rest.split(",") if part]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise SpecError(f"--trace {text}: expected KEY=VALUE, received {wrong[0]!r}")
    return name, {key: value for key, _, value in pairs}


def _form(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline(10_000).strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise DataError(f"--trace {path}: expected a file, or {SYNTHETIC!r}: {exc}") from exc
    if first.startswith("{"):
        return "gavel"
    columns = {name.strip() for name in first.split(",")}
    for form, expected in _BY_COLUMNS.items():
        if columns.issuperset(expected):
            return form
    known = "; ".join(f"{','.join(expected)} ({form})" for form, expected in _BY_COLUMNS.items())
    raise DataError(
        f"{path}:1: expected a JSON document of Gavel's throughputs, or a CSV file with the columns {known}; "
        f"received {first[:200]!r}"
    )


def _numbers(text: str, given: Mapping[str, str], made: type[Scaling] | type[Arrivals]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in fields(made):
        if one.name in given:
            kind = int if isinstance(one.default, int) else float
            try:
                found[one.name] = kind(given[one.name])
            except ValueError:
                expected = f"{'an' if kind is int else 'a'} {kind.__name__}"
                raise SpecError(f"--trace {text}: {one.name} is {expected}, received {given[one.name]!r}") from None
    return found
