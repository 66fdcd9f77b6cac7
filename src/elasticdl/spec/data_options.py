"""Options of what a job reads: what they set is `elasticdl.spec.data`."""

from __future__ import annotations

from elasticdl.spec.option import EVALUATE, MODEL_COMMANDS, PREDICT, RUN, TRAIN, Form, Option

SECTION = "Data"

DATA_OPTIONS: tuple[Option, ...] = (
    Option(
        "training_data",
        "data.training",
        SECTION,
        "File, directory, glob or table to train on.",
        (TRAIN,),
        metavar="PATH",
    ),
    Option("validation_data", "data.validation", SECTION, "Records to evaluate on.", (TRAIN, EVALUATE), metavar="PATH"),
    Option("prediction_data", "data.prediction", SECTION, "Records to predict.", (PREDICT,), metavar="PATH"),
    Option(
        "bad_rows",
        "prediction.bad_rows",
        SECTION,
        "Rows that cannot be read: error (default) ends the job, skip leaves them out, mark writes why.",
        (PREDICT,),
        metavar="WHAT",
    ),
    Option(
        "id_column",
        "prediction.id_column",
        SECTION,
        "Column of the data to write beside each prediction.",
        (PREDICT,),
        metavar="NAME",
    ),
    Option(
        "data_format",
        "data.format",
        SECTION,
        "auto, csv, jsonl, parquet, tfrecord, images or python. Default: by the file's name.",
        MODEL_COMMANDS,
        metavar="FORMAT",
    ),
    Option(
        "columns",
        "data.columns",
        SECTION,
        "Names for a CSV without a header line, or the columns to read.",
        MODEL_COMMANDS,
        Form.LIST,
        "A,B,…",
    ),
    Option(
        "delimiter",
        "data.delimiter",
        SECTION,
        "Between the fields of a CSV file, or tab. Default: by the file's name.",
        MODEL_COMMANDS,
        metavar="C",
    ),
    Option(
        "unpack_limit",
        "data.unpack_limit",
        SECTION,
        "The most one compressed file may become on disk.",
        MODEL_COMMANDS,
        metavar="SIZE",
    ),
    Option(
        "data_retry_s",
        "data.retry_s",
        SECTION,
        "For how long a file, a database or an object store that went away is waited for.",
        MODEL_COMMANDS,
        metavar="SECONDS",
    ),
    Option(
        "bad_records",
        "data.bad_records",
        SECTION,
        "Skip and name up to N records that cannot be read, or for which a function fails. Default: 0.",
        (TRAIN, EVALUATE, RUN),
        metavar="N",
    ),
    Option(
        "shard_records",
        "data.shard_records",
        SECTION,
        "Records in a shard, the unit that is shuffled and leased.",
        MODEL_COMMANDS,
        metavar="N",
    ),
    Option(
        "data_reader_params",
        "data.reader_params",
        SECTION,
        "Keyword arguments for custom_data_reader, as in --model_params.",
        MODEL_COMMANDS,
        Form.MAPPING,
        '"a=1;b=2"',
    ),
)
