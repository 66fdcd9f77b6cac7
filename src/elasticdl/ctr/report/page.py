"""The report as one page that needs nothing else, its pictures in it and beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from elasticdl import page
from elasticdl.ctr.report import picture
from elasticdl.ctr.report.columns import Column
from elasticdl.ctr.report.course import Course
from elasticdl.ctr.report.importance import Importance
from elasticdl.ctr.report.measured import Measured
from elasticdl.ctr.report.quality import Quality


@dataclass(frozen=True, slots=True)
class Report:
    """All that is told. `facts` stand at the top; `settings` are documents by title, shown as they are."""

    name: str
    facts: Mapping[str, str]
    measured: Measured
    course: Course | None  # None: the job that trained the model is not known here
    columns: Sequence[Column]
    settings: Mapping[str, str]
    command: str


def write(directory: Path, report: Report) -> Path:
    """index.html, and the pictures as PNGs."""
    pictures = draw(report)
    return page.write(directory, page.whole(f"{report.name}: report", _body(report, pictures)), pictures)


def draw(report: Report) -> dict[str, bytes]:
    measured = report.measured
    found = {"training": picture.training(report.course, report.measured.step)} if report.course is not None else {}
    return found | {
        "roc": picture.roc(measured.roc, measured.quality.auc),
        "calibration": picture.reliability(measured.reliability),
        "chances": picture.chances(measured.histogram),
        "importance": picture.importance(measured.importance),
    }


def _body(report: Report, pictures: Mapping[str, bytes]) -> str:
    measured = report.measured
    images = {name: page.image(name, content) for name, content in pictures.items()}
    rows = f"{measured.judged} rows ({measured.quality.rows:,})"
    return "\n".join(
        [
            f"<h1>{escape(report.name)}</h1>",
            f"<table>{''.join(_fact(name, text) for name, text in report.facts.items())}</table>",
            "<h2>How good it is</h2>",
            _qualities(measured),
            "<h2>Training</h2>",
            images.get("training", '<p class="note">The job that trained this model is not on this machine.</p>'),
            f"<h2>ROC curve and calibration: {escape(rows)}</h2>",
            f'<div class="pair">{images["roc"]}{images["calibration"]}</div>',
            f'<p class="note">Calibration: {len(measured.reliability)} bins of about as many rows each, by predicted '
            "chance. Points below the dashed line: more was predicted than clicked.</p>",
            f"<h2>Predicted chances: {escape(rows)}</h2>",
            images["chances"],
            "<h2>What the columns are worth to the model</h2>",
            _importance_note(measured),
            images["importance"],
            "<h2>Columns</h2>",
            f'<div class="wide">{_columns(report.columns)}</div>',
            '<p class="note">Missing and distinct are of the training rows. Columns without an importance are not '
            "seen by the model.</p>",
            "<h2>Settings</h2>",
            *(
                f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
                for title, text in report.settings.items()
            ),
            f"<h2>Made by</h2><pre>{escape(report.command)}</pre>",
            f'<p class="note">{escape(", ".join(f"{name} {text}" for name, text in measured.versions.items()))}</p>',
        ]
    )


def _fact(name: str, text: str) -> str:
    return f"<tr><td>{escape(name)}</td><td class=left>{escape(text)}</td></tr>"


def _qualities(measured: Measured) -> str:
    titles = ("rows", "clicks", "rate", "logloss", "of the base rate", "gain", "AUC", "calibration")
    head = "".join(f"<th>{title}</th>" for title in ("", *titles))
    parts = {"validation": measured.validation, "test": measured.test}
    rows = [_row(name, _quality(one)) for name, one in parts.items() if one is not None]
    missing = '<p class="note">There are no test rows; all below is of the validation rows.</p>'
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f"{missing if measured.test is None else ''}"
        '<p class="note">Of the base rate: the logloss of saying the rows\' own rate of clicks of every row. Gain: the '
        "part of that which the model takes away. Calibration: predicted clicks over clicks.</p>"
    )


def _quality(one: Quality) -> list[str]:
    return [
        f"{one.rows:,}", f"{one.clicks:,}", f"{one.rate:.2%}", f"{one.logloss:.5f}", f"{one.base_logloss:.5f}",
        _or_none(one.gain, ".2%"), _or_none(one.auc, ".5f"), _or_none(one.calibration, ".4f"),
    ]  # fmt: skip


def _importance_note(measured: Measured) -> str:
    times = "once" if measured.importance_repeats == 1 else f"{measured.importance_repeats} times"
    return (
        f'<p class="note">Each column\'s values change places {times} among {measured.importance_rows:,} '
        f"{measured.judged} rows (seed {measured.seed}); how much worse the model gets is what the column is worth. "
        "Columns that tell the same share their worth, so that each may seem worth little.</p>"
    )


def _columns(found: Sequence[Column]) -> str:
    heads = ("column", "kind", "missing", "distinct", "treatment", "why", "rise in logloss", "drop in AUC")
    left = {"treatment", "why", "kind"}
    head = "".join(f"<th{' class=left' if title in left else ''}>{title}</th>" for title in heads)
    # The most important first, then those that the model does not see, as they stand in the data.
    ordered = sorted(found, key=lambda one: -one.importance.logloss_rise if one.importance else float("inf"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(_column(one) for one in ordered)}</tbody></table>"


def _column(one: Column) -> str:
    about = "" if one.statistics.is_distinct_exact else "≈"
    cells = [
        f"<td>{escape(one.name)}</td>",
        f"<td class=left>{escape(one.statistics.kind)}</td>",
        f"<td>{one.missing:.1%}</td>",
        f"<td>{about}{one.statistics.distinct:,}</td>",
        f"<td class=left><code>{escape(', '.join(one.treatments))}</code></td>",
        f"<td class=left>{escape(one.reason)}</td>",
        *(f"<td>{text}</td>" for text in _worth(one.importance)),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _worth(one: Importance | None) -> tuple[str, str]:
    if one is None:
        return "", ""
    return _spread(one.logloss_rise, one.logloss_spread), _spread(one.auc_drop, one.auc_spread)


def _spread(value: float | None, spread: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.5f}" + ("" if spread is None else f" ± {spread:.5f}")


def _row(name: str, cells: Sequence[str]) -> str:
    return f"<tr><td>{escape(name)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _or_none(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
