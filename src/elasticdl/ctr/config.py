"""ctr.yaml: its schema, and the commented template that `elasticdl ctr init` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from elasticdl.errors import SpecError
from elasticdl.features.sql.input_files import expand_column_names
from elasticdl.spec.fields import NotNegative, Positive, SpecModel

LABEL_EXAMPLE = "label: {column: clicked, values: {'yes': 1, 'no': 0}}"

Percent = Annotated[float, Field(ge=0, le=100)]


class TrainingConfig(SpecModel):
    """How it is trained. None: as `defaults.py` says for the model."""

    epochs: Positive = 10  # at most: it ends when the validation data gets no better
    batch_size: Positive | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    evaluations: Positive = 2  # an epoch
    patience: Positive = 3  # evaluations without gain, after which it ends
    seed: NotNegative = 0
    positive_weight: Annotated[float, Field(gt=0)] = 1.0  # of a row with label 1; chances are no longer calibrated then


class CtrConfig(SpecModel):
    """One config. Relative paths are meant from the file's directory."""

    data: str
    label: str
    label_values: dict[str, int] = {}  # what stands for 0 and 1, where the column holds neither
    model: str
    params: dict[str, Any] = {}  # of the model
    columns: tuple[str, ...] = ()  # names, for files without a header
    delimiter: str = ""
    validation: str | None = None  # other files or tables; None: part of `data`
    test: str | None = None
    split: tuple[Percent, Percent, Percent] = (80.0, 10.0, 10.0)  # percent of rows, in their order
    features: dict[str, Any] = {}  # treatments that differ from the proposed ones
    weight: str | None = None  # a column with the weight of each row
    min_count: Positive = 2  # values of fewer rows never come into a vocabulary
    keep_statistics: bool = False  # though the data is another now: for models that go on from earlier weights
    training: TrainingConfig = TrainingConfig()
    workers: Positive | tuple[Positive, Positive] = 2  # or [fewest, most]
    ps: Positive = 1
    output: str = ""  # where the model goes; "": beside this file
    report: bool = True  # a page on the model, at the end of a job that is attended
    search: dict[str, Any] = {}  # what `elasticdl ctr search` may choose: see `space.py`
    job: dict[str, Any] = {}  # any other key of a job description, e.g. {ps: {mode: async}}

    @field_validator("columns", mode="before")
    @classmethod
    def _columns_by_range(cls, given: Any) -> Any:
        """`label,I1..I13` or a list of such."""
        if given is None or given == "":
            return ()
        words = given.split(",") if isinstance(given, str) else given
        return expand_column_names([str(word).strip() for word in words])

    @model_validator(mode="before")
    @classmethod
    def _label_with_values(cls, given: Any) -> Any:
        """`label: {column: clicked, values: {yes: 1, no: 0}}` is the same as label and label_values."""
        label = given.get("label") if isinstance(given, Mapping) else None
        if isinstance(label, Mapping):
            if set(label) != {"column", "values"} or not isinstance(label["values"], Mapping):
                raise ValueError(f"label: expected a column, or one with its values: {LABEL_EXAMPLE}")
            return {**given, "label": label["column"], "label_values": label["values"]}
        return given

    @field_validator("label_values", mode="before")
    @classmethod
    def _values_are_classes(cls, given: Any) -> dict[str, int]:
        if not isinstance(given, Mapping):
            raise ValueError(f"expected which value stands for 0 and which for 1: {LABEL_EXAMPLE}")
        if given and {*given.values()} != {0, 1}:
            raise ValueError(f"expected some values that stand for 0 and some for 1, e.g. {LABEL_EXAMPLE}")
        return {text: int(number) for value, number in given.items() for text in _spellings(value)}

    @model_validator(mode="before")
    @classmethod
    def _model_with_params(cls, given: Any) -> Any:
        """`model: {deepfm: {embedding_dim: 8}}` is the same as model and params."""
        model = given.get("model") if isinstance(given, Mapping) else None
        if isinstance(model, Mapping):
            if len(model) != 1 or "params" in given:
                raise ValueError(
                    "model: expected a name, or one name with its parameters: {deepfm: {embedding_dim: 8}}"
                )
            ((name, params),) = model.items()
            return {**given, "model": name, "params": params or {}}
        return given

    @model_validator(mode="after")
    def _split_is_whole(self) -> CtrConfig:
        if abs(sum(self.split) - 100.0) > 1e-6 or not self.split[0]:
            raise ValueError(
                "split: expected percents for training, validation and test that make 100, e.g. [80, 10, 10]"
            )
        return self

    @property
    def data_splits(self) -> tuple[str, str | None, str | None]:
        """Addresses of the training, validation and test data. Where others are given, `data` is not split for them."""
        first, second, third = self.split
        if self.test is not None:
            third, first = 0.0, first + third
        if self.validation is not None:
            second, first = 0.0, first + second
        cuts = (0.0, first, first + second, 100.0)
        rows = [f"{self.data}#rows={low:g}%:{high:g}%" if low < high else None for low, high in pairwise(cuts)]
        training = self.data if first == 100.0 else rows[0]
        assert training is not None
        return training, self.validation or rows[1], self.test or rows[2]


def _spellings(value: Any) -> list[str]:
    """The texts that a value of YAML may be in the data: a bare yes or true is a truth value there, as 1.0 is 1."""
    if isinstance(value, bool):
        words = ("yes", "true", "on") if value else ("no", "false", "off")
        spelled = [spelling for word in words for spelling in (word, word.capitalize(), word.upper())]
        return [*spelled, str(int(value))]  # truth values of Parquet and databases are counted as 0 and 1
    if isinstance(value, int | float):
        return list(dict.fromkeys([f"{value:g}", str(float(value))]))
    return [str(value)]


def is_ctr_config(document: Mapping[str, Any]) -> bool:
    """Whether a YAML file is one of these, and not the description of a job."""
    return "label" in document and "data" in document and not isinstance(document["data"], Mapping)


def parse_config(document: Mapping[str, Any], where: str) -> CtrConfig:
    """SpecError names the place, and the nearest key."""
    try:
        return CtrConfig.model_validate(dict(document))
    except ValidationError as exc:
        raise SpecError(f"{where}: {_describe_errors(exc)}") from exc


def _describe_errors(exc: ValidationError) -> str:
    """All that is wrong: a line, or a line each."""
    told = [_describe_error(error) for error in exc.errors()]
    return told[0] if len(told) == 1 else f"{len(told)} things are wrong:" + "".join(f"\n  {line}" for line in told)


def _describe_error(first: ErrorDetails) -> str:
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = TrainingConfig.model_fields if place.startswith("training.") else CtrConfig.model_fields
        near = get_close_matches(place.rpartition(".")[2], known, n=1)
        return f"{place}: unknown key; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}")
    if first["type"] == "missing":
        return f"{place}: is missing; data, label and model have no default"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


CONFIG_TEMPLATE = """\
# A click-through-rate model without code. Train it:  elasticdl train {file}
data: {data}            # files (CSV, TSV, Parquet; .gz and .xz too), or a table: postgresql://…?table=clicks
label: {label}          # the column to predict: 0 or 1; of others: {{column: clicked, values: {{'yes': 1, 'no': 0}}}}
model: {model:<17} # elasticdl zoo list; its parameters: {{{model}: {{embedding_dim: 16}}}}
{columns}
# Everything below has the value it would have anyway.
split: [80, 10, 10]     # percent of the rows for training, validation and test, in the order they stand
# validation: other.csv # or data of their own
# test: tomorrow.csv

# What becomes of columns. Proposals with their reasons are in {directory}/features.yaml; here is what you know better:
# features:
#   I1: discretization(quantiles=20)
#   C3: hashing(num_bins=100000)
#   "C*": index_lookup(min_count=5)      # patterns and groups, too
#   crosses: [cross(C1, C2)]
min_count: 2            # values of fewer rows never come into a vocabulary
keep_statistics: false  # true: though the data is another now, for a model that goes on from earlier weights

training:
  epochs: 10            # at most: it ends when the validation rows get no better
  evaluations: 2        # an epoch
  patience: 3           # evaluations without gain, after which it ends
  # batch_size: 2048  # default: by the rows, 64 to 2048
  # learning_rate: 0.001
  seed: 0
  positive_weight: 1.0  # of rows with label 1; other than 1, predicted chances are no longer calibrated
# weight: importance    # a column with the weight of each row in training

workers: 2              # at most, and one at least; or [3, 8]: from three to eight, as many as can be had
ps: 1                   # parameter servers, which hold the embeddings
# output: model         # where the model goes; default: {directory}/model
report: true            # at the end, a page with pictures of what was learnt: {directory}/report/index.html
# job: {{ps: {{mode: async}}}}   # any other key of a job description

# What `elasticdl ctr search {file}` may choose; without it, what is worth a try for the model:
# search:
#   learning_rate: log(1e-4, 1e-2)
#   embedding_dim: [8, 16, 32]
#   dropout: uniform(0, 0.5)
"""


def render_template(data: str, label: str, model: str, columns: Sequence[str], file: str, directory: str) -> str:
    import json

    def scalar(text: str) -> str:
        return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)

    given = f"columns: {json.dumps(list(columns), ensure_ascii=False)}   # the file has no header" if columns else ""
    return CONFIG_TEMPLATE.format(
        file=file,
        data=json.dumps(data, ensure_ascii=False),
        label=scalar(label),
        model=model,
        columns=given,
        directory=directory,
    )
