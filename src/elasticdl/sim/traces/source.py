"""Opens the trace named by an option: a file of any known format, or synthetic jobs, with parameters after a colon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path

from elasticdl.errors import DataError, SpecError
from elasticdl.sim.traces import csv_traces, pollux, synthetic
from elasticdl.sim.traces.recorded import ScalingAssumption
from elasticdl.sim.traces.synthetic import PoissonArrivals
from elasticdl.sim.traces.trace import TraceJob

SYNTHETIC = "synthetic"
_BY_COLUMNS = {
    "pollux": pollux.POLLUX_COLUMNS,
    "philly": csv_traces.PHILLY_COLUMNS,
    "tiresias": csv_traces.TIRESIAS_COLUMNS,
    "elastic": csv_traces.ELASTIC_COLUMNS,
}
_SCALING = tuple(field.name for field in fields(ScalingAssumption))
_ARRIVALS = tuple(field.name for field in fields(PoissonArrivals))
_PARAMETERS = {
    "pollux": (),
    "philly": (*_SCALING, "cluster"),
    "tiresias": _SCALING,
    "elastic": ("efficiency",),
    "gavel": _ARRIVALS,
    SYNTHETIC: (*_SCALING, *_ARRIVALS),
}


@dataclass(frozen=True)
class TraceSource:
    """A trace that can be read any number of times: once for each policy, in any process."""

    format: str  # pollux, philly, tiresias, elastic, gavel, synthetic
    path: Path = field(default_factory=Path)
    profiles: Path = field(default_factory=Path)  # directory of measured applications
    scaling: ScalingAssumption = field(default_factory=ScalingAssumption)
    arrivals: PoissonArrivals = field(default_factory=PoissonArrivals)
    cluster: str = ""
    limit: int = 0  # 0: all jobs

    def jobs(self, *, adapts_batch: bool = True, needs_oracle: bool = False) -> Iterator[TraceJob]:
        jobs = self._read_jobs(adapts_batch, needs_oracle)
        return islice(jobs, self.limit) if self.limit else jobs

    def device_kinds(self) -> list[str]:
        """Returns the kinds of devices on which its jobs were measured; []: they run on any."""
        from elasticdl.sim.traces import gavel

        return gavel.load_throughputs(self.path).kinds if self.format == "gavel" else []

    def _read_jobs(self, adapts_batch: bool, needs_oracle: bool) -> Iterator[TraceJob]:
        if self.format == "pollux":
            applications = pollux.load_applications(self.profiles)
            return pollux.read_pollux_trace(
                self.path, applications, adapts_batch=adapts_batch, needs_oracle=needs_oracle
            )
        if self.format == "philly":
            return csv_traces.read_philly_trace(self.path, self.scaling, self.cluster)
        if self.format == "tiresias":
            return csv_traces.read_tiresias_trace(self.path, self.scaling)
        if self.format == "elastic":
            return csv_traces.read_elastic_trace(self.path, self.scaling)
        if self.format == "gavel":
            from elasticdl.sim.traces import gavel

            return gavel.synthesize_gavel_jobs(gavel.load_throughputs(self.path), self.arrivals)
        return synthetic.synthesize_jobs(self.arrivals, self.scaling)


def open_trace(text: str, profiles: Path | None = None, limit: int = 0) -> TraceSource:
    """Parses `FILE`, `FILE:KEY=VALUE,…` or `synthetic:KEY=VALUE,…`. The file's first line determines the format."""
    name, parameters = _split_parameters(text)
    path = Path(name)
    format = SYNTHETIC if name == SYNTHETIC else _detect_format(path)
    if unknown := sorted(set(parameters) - set(_PARAMETERS[format])):
        allowed = ", ".join(_PARAMETERS[format]) or "none"
        raise SpecError(f"--trace {text}: a {format} trace has the parameters {allowed}; received {', '.join(unknown)}")
    return TraceSource(
        format,
        path,
        profiles or path.resolve().parent.parent / "traces",
        ScalingAssumption(**_parse_numbers(text, parameters, ScalingAssumption)),
        PoissonArrivals(**_parse_numbers(text, parameters, PoissonArrivals)),  # type: ignore[arg-type]
        parameters.get("cluster", ""),
        limit,
    )


def _split_parameters(text: str) -> tuple[str, dict[str, str]]:
    name, colon, parameters = text.rpartition(":")
    if not colon or "=" not in parameters.partition(",")[0]:
        return text, {}
    pairs = [part.partition("=") for part in parameters.split(",") if part]
    if malformed := [key for key, equals, _ in pairs if not equals]:
        raise SpecError(f"--trace {text}: expected KEY=VALUE, received {malformed[0]!r}")
    return name, {key: value for key, _, value in pairs}


def _detect_format(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline(10_000).strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise DataError(f"--trace {path}: expected a file, or {SYNTHETIC!r}: {exc}") from exc
    if first.startswith("{"):
        return "gavel"
    columns = {name.strip() for name in first.split(",")}
    for format, expected in _BY_COLUMNS.items():
        if columns.issuperset(expected):
            return format
    known_formats = "; ".join(f"{','.join(expected)} ({format})" for format, expected in _BY_COLUMNS.items())
    raise DataError(
        f"{path}:1: expected a JSON document of Gavel's throughputs, or a CSV file with the columns {known_formats}; "
        f"received {first[:200]!r}"
    )


def _parse_numbers(
    text: str, parameters: Mapping[str, str], parameter_class: type[ScalingAssumption] | type[PoissonArrivals]
) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for option in fields(parameter_class):
        if option.name in parameters:
            number_type = int if isinstance(option.default, int) else float
            try:
                numbers[option.name] = number_type(parameters[option.name])
            except ValueError:
                expected = f"{'an' if number_type is int else 'a'} {number_type.__name__}"
                raise SpecError(
                    f"--trace {text}: {option.name} is {expected}, received {parameters[option.name]!r}"
                ) from None
    return numbers
