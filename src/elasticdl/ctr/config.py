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
    """Options of the training. None means the default of `job_description` for the model and data."""

    epochs: Positive = 10  # at most: training ends early if the validation metrics stop improving
    batch_size: Positive | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    evaluations: Positive = 2  # per epoch
    patience: NotNegative = 3  # training ends after this many evaluations without improvement; 0: after all epochs
    seed: NotNegative = 0
    positive_weight: Annotated[float, Field(gt=0)] = (
        1.0  # of a row with label 1; unless it is 1, probabilities are not calibrated
    )


class WorkerLimits(SpecModel):
    """The numbers of workers between which a job may be."""

    min: Positive
    max: Positive


class CtrConfig(SpecModel):
    """The content of ctr.yaml. Relative paths start at the file's directory."""

    data: str
    label: str
    label_values: dict[str, int] = {}  # the texts that stand for 0 and 1, if the column has others
    model: str
    params: dict[str, Any] = {}  # parameters of the model
    columns: tuple[str, ...] = ()  # names of columns, for files without a header
    delimiter: str = ""
    validation: str | None = None  # other files or a table; None: rows of `data`
    test: str | None = None
    split: tuple[Percent, Percent, Percent] = (80.0, 10.0, 10.0)  # percent of rows, in their order
    features: dict[str, Any] = {}  # transforms that differ from the proposed ones
    weight: str | None = None  # a column with the weight of each row
    min_count: Positive = 2  # rarer values are left out of vocabularies
    keep_statistics: bool = False  # even if the data has changed: for models that start from earlier weights
    training: TrainingConfig = TrainingConfig()
    workers: Positive | WorkerLimits = 2  # the maximum, or both limits
    ps: Positive = 1
    output: str = ""  # where the model is written; "": beside this file
    report: bool = True  # write a page about the model at the end of a job that is attended
    search: dict[str, Any] = {}  # the search space of `elasticdl ctr search`: see ctr.search.space
    job: dict[str, Any] = {}  # any other key of a job description, e.g. {ps: {mode: async}}

    @field_validator("columns", mode="before")
    @classmethod
    def _expand_columns(cls, value: Any) -> Any:
        """Accepts `label,I1..I13`, or a list of such names and ranges."""
        if value is None or value == "":
            return ()
        names = value.split(",") if isinstance(value, str) else value
        return expand_column_names([str(name).strip() for name in names])

    @model_validator(mode="before")
    @classmethod
    def _split_label(cls, document: Any) -> Any:
        """Accepts `label: {column: clicked, values: {yes: 1, no: 0}}` for label and label_values."""
        label = document.get("label") if isinstance(document, Mapping) else None
        if isinstance(label, Mapping):
            if set(label) != {"column", "values"} or not isinstance(label["values"], Mapping):
                raise ValueError(f"label: expected a column, or one with its values: {LABEL_EXAMPLE}")
            return {**document, "label": label["column"], "label_values": label["values"]}
        return document

    @field_validator("label_values", mode="before")
    @classmethod
    def _spell_label_values(cls, classes: Any) -> dict[str, int]:
        if not isinstance(classes, Mapping):
            raise ValueError(f"expected which value stands for 0 and which for 1: {LABEL_EXAMPLE}")
        if classes and {*classes.values()} != {0, 1}:
            raise ValueError(f"expected some values that stand for 0 and some for 1, e.g. {LABEL_EXAMPLE}")
        return {text: int(number) for value, number in classes.items() for text in _spellings(value)}

    @model_validator(mode="before")
    @classmethod
    def _split_model(cls, document: Any) -> Any:
        """Accepts `model: {deepfm: {embedding_dim: 8}}` for model and params."""
        model = document.get("model") if isinstance(document, Mapping) else None
        if isinstance(model, Mapping):
            if len(model) != 1 or "params" in document:
                raise ValueError(
                    "model: expected a name, or one name with its parameters: {deepfm: {embedding_dim: 8}}"
                )
            ((name, params),) = model.items()
            return {**document, "model": name, "params": params or {}}
        return document

    @model_validator(mode="after")
    def _check_split(self) -> CtrConfig:
        if abs(sum(self.split) - 100.0) > 1e-6 or not self.split[0]:
            raise ValueError(
                "split: expected percents for training, validation and test that make 100, e.g. [80, 10, 10]"
            )
        return self

    @property
    def data_splits(self) -> tuple[str, str | None, str | None]:
        """Addresses of the training, validation and test data. `data` is not split for those given."""
        first, second, third = self.split
        if self.test is not None:
            third, first = 0.0, first + third
        if self.validation is not None:
            second, first = 0.0, first + second
        bounds = (0.0, first, first + second, 100.0)
        rows = [f"{self.data}#rows={low:g}%:{high:g}%" if low < high else None for low, high in pairwise(bounds)]
        training = self.data if first == 100.0 else rows[0]
        assert training is not None
        return training, self.validation or rows[1], self.test or rows[2]


def _spellings(value: Any) -> list[str]:
    """Returns the texts that a YAML value may have in the data: yes and true are booleans in YAML, as 1.0 is 1."""
    if isinstance(value, bool):
        spellings = ("yes", "true", "on") if value else ("no", "false", "off")
        texts = [text for word in spellings for text in (word, word.capitalize(), word.upper())]
        return [*texts, str(int(value))]  # booleans of Parquet and databases are counted as 0 and 1
    if isinstance(value, int | float):
        return list(dict.fromkeys([f"{value:g}", str(float(value))]))
    return [str(value)]


def is_ctr_config(document: Mapping[str, Any]) -> bool:
    """Whether a YAML file is a ctr.yaml, and not the description of a job."""
    return "label" in document and "data" in document and not isinstance(document["data"], Mapping)


def parse_config(document: Mapping[str, Any], where: str) -> CtrConfig:
    """Parses a config. A SpecError names the path of each error, and the nearest key."""
    try:
        return CtrConfig.model_validate(dict(document))
    except ValidationError as exc:
        raise SpecError(f"{where}: {_describe_errors(exc)}") from exc


def _describe_errors(exc: ValidationError) -> str:
    """Lists all errors, each on a line of its own."""
    lines = [_describe_error(error) for error in exc.errors()]
    return lines[0] if len(lines) == 1 else f"{len(lines)} things are wrong:" + "".join(f"\n  {line}" for line in lines)


def _describe_error(error: ErrorDetails) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        keys = TrainingConfig.model_fields if path.startswith("training.") else CtrConfig.model_fields
        near = get_close_matches(path.rpartition(".")[2], keys, n=1)
        return f"{path}: unknown key; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(keys)}")
    if error["type"] == "missing":
        return f"{path}: is missing; data, label and model have no default"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{path}: {message}" if path else message


CONFIG_TEMPLATE = """\
# A click-through-rate model without code. Train it:  elasticdl train {file}
data: {data}            # files (CSV, TSV, Parquet; .gz and .xz too), or a table: postgresql://…?table=clicks
label: {label}          # the column to predict: 0 or 1; or {{column: clicked, values: {{'yes': 1, 'no': 0}}}}
model: {model:<17} # elasticdl zoo list; its parameters: {{{model}: {{embedding_dim: 16}}}}
{columns}
# Everything below is set to its default.
split: [80, 10, 10]     # percent of the rows for training, validation and test, in their order
# validation: other.csv # or other data
# test: tomorrow.csv

# The transforms of columns. Proposals with their reasons are in {directory}/features.yaml; override them here:
# features:
#   I1: discretization(quantiles=20)
#   C3: hashing(num_bins=100000)
#   "C*": index_lookup(min_count=5)      # patterns and groups work, too
#   crosses: [cross(C1, C2)]
min_count: 2            # rarer values are left out of vocabularies
keep_statistics: false  # true: even if the data has changed, for a model that starts from earlier weights

training:
  epochs: 10            # at most: training ends early if the validation metrics stop improving
  evaluations: 2        # per epoch
  patience: 3           # training ends after this many evaluations without improvement; 0: after all epochs
  # batch_size: 2048  # default: 64 to 2048, by the number of rows
  # learning_rate: 0.001
  seed: 0
  positive_weight: 1.0  # of rows with label 1; unless it is 1, probabilities are not calibrated
# weight: importance    # a column with the weight of each row in training

workers: 2              # at most, and at least one; or {{min: 3, max: 8}}: as many as are free
ps: 1                   # parameter servers, which have the embeddings
# output: model         # where the model is written; default: {directory}/model
report: true            # at the end, write a page about the model: {directory}/report/index.html
# job: {{ps: {{mode: async}}}}   # any other key of a job description

# The search space of `elasticdl ctr search {file}`; without it there is a default for each model:
# search:
#   learning_rate: log(1e-4, 1e-2)
#   embedding_dim: [8, 16, 32]
#   dropout: uniform(0, 0.5)
"""


def render_template(data: str, label: str, model: str, columns: Sequence[str], file: str, directory: str) -> str:
    import json

    def scalar(text: str) -> str:
        return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)

    columns_line = (
        f"columns: {json.dumps(list(columns), ensure_ascii=False)}   # the file has no header" if columns else ""
    )
    return CONFIG_TEMPLATE.format(
        file=file,
        data=json.dumps(data, ensure_ascii=False),
        label=scalar(label),
        model=model,
        columns=columns_line,
        directory=directory,
    )
