"""The ctr.yaml that `elasticdl ctr init` writes: what is needed, and every option with a word about it."""

from __future__ import annotations

from collections.abc import Sequence

TEMPLATE = """\
# A click-through-rate model without code. Train it:  elasticdl train {file}
data: {data}            # files (CSV, TSV, Parquet; .gz and .xz too), or a table: postgresql://…?table=clicks
label: {label}          # the column to predict: 0 or 1; of others: {{column: clicked, values: {{'yes': 1, 'no': 0}}}}
model: {model:<17} # elasticdl zoo list; its parameters: {{{model}: {{columns: 16}}}}
{columns}
# Everything below has the value it would have anyway.
split: [80, 10, 10]     # percent of the rows for training, validation and test, in the order they stand
# validation: other.csv # or data of their own
# test: tomorrow.csv

# What becomes of columns. Proposals with their reasons are in {directory}/features.yaml; here is what you know better:
# features:
#   I1: discretize(quantiles=20)
#   C3: hash(bins=100000)
#   "C*": lookup(min_count=5)      # patterns and groups, too
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
#   columns: [8, 16, 32]
#   dropout: uniform(0, 0.5)
"""


def written(data: str, label: str, model: str, columns: Sequence[str], file: str, directory: str) -> str:
    import json

    def scalar(text: str) -> str:
        return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)

    given = f"columns: {json.dumps(list(columns), ensure_ascii=False)}   # the file has no header" if columns else ""
    return TEMPLATE.format(
        file=file,
        data=json.dumps(data, ensure_ascii=False),
        label=scalar(label),
        model=model,
        columns=given,
        directory=directory,
    )
