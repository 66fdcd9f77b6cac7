"""Opens the source of records that a data path means: its files, their format, the number of records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticdl.data.files import inventory, paths
from elasticdl.data.files.inventory import FileRecord
from elasticdl.data.files.stored_file import StoredFile, file_from_record, find_file
from elasticdl.data.files.unpack import is_compressed, unpack_file
from elasticdl.data.interface import ProgressCallback, RecordSource
from elasticdl.data.readers import composite, csv, images, json_lines, tfrecord
from elasticdl.data.readers.composite import RowRangeSource, split_row_range
from elasticdl.data.tables import table_uri
from elasticdl.errors import DataError
from elasticdl.extras import check_module
from elasticdl.spec import DataSpec

MISSING_FILE_WAIT_S = 10.0  # for a file that is not in the inventory: most are wrong paths


def open_source(
    uri: str,
    data: DataSpec,
    index_directory: Path | None = None,
    progress: ProgressCallback | None = None,
    run: str = "",
) -> RecordSource:
    """Opens the records of all files that `uri` means, in the format of `data`, or the rows of a table.

    Every file is read once (an index in `index_directory` saves that the next time), so that missing, empty and
    truncated files are found now. `progress` is called with bytes read and bytes in total. With a `run`, the files are
    those that the first worker of that run recorded in `index_directory`.
    """
    uri, rows = split_row_range(uri)
    if rows is not None:
        source = open_source(uri, data, index_directory, progress, run)
        return RowRangeSource(source, rows, f"{uri}, rows {rows}")
    if data.format == "python":
        raise DataError(
            f"{uri}: data.format is python, whose records come from the model file: define custom_data_reader(…) "
            f"there, or choose csv, jsonl, parquet, tfrecord or images"
        )
    if table_uri.is_table_uri(uri):
        from elasticdl.data.tables import databases  # with Arrow, which takes a fifth of a second to import

        return databases.open_table(uri, data, index_directory)
    if data.format == "images":
        if data.columns:
            raise DataError("data.columns: records of images are image, label and class; leave it out")
        return images.open_images(uri)
    files, is_recorded = _find_files(uri, data, index_directory, run)
    file_format = paths.choose_format([file.path for file in files], data.format)
    opener = _choose_opener(uri, file_format, data, index_directory)
    total = sum(file.size for file in files)
    parts: list[RecordSource] = []
    before = 0
    for file in files:
        file_progress = _offset_progress(progress, before, total)
        # For a compressed file only unpacking is shown: finding its records afterwards is fast in comparison.
        stored = unpack_file(file, index_directory, data.unpack_bytes, file_progress)
        parts.append(opener(stored, file_progress if stored is file else None))
        before += file.size
        if progress is not None:
            progress(before, total)
    if run and index_directory is not None and not is_recorded:
        records = [FileRecord(file.path, file.size, file.version, _digest(file)) for file in files]
        # Another worker may have been faster, and may have found other files.
        if inventory.save_inventory(index_directory, uri, run, records) != records:
            return open_source(uri, data, index_directory, progress, run)
    source = composite.concatenate_sources(uri, parts)
    if len(source) == 0:
        raise DataError(f"{uri}: no records in {len(parts)} file(s); check that the path leads to the right data")
    return source


def _find_files(uri: str, data: DataSpec, index_directory: Path | None, run: str) -> tuple[list[StoredFile], bool]:
    """Returns the files, and whether they come from the inventory of the run."""
    records = inventory.load_inventory(index_directory, uri, run) if run and index_directory is not None else None
    if records is not None:
        return [file_from_record(*record, retry_s=data.retry_s) for record in records], True
    missing_s = min(MISSING_FILE_WAIT_S, data.retry_s) if run else 0.0
    expanded = paths.expand_paths(uri, known_only=data.format == "auto", retry_s=data.retry_s)
    return [find_file(path, data.retry_s, missing_s) for path in expanded], False


def _digest(file: StoredFile) -> str:
    if not is_compressed(file.path):  # of a compressed file only the unpacked one is read again
        file.ensure_digest()
    return file.content.digest


def _choose_opener(
    uri: str, file_format: str, data: DataSpec, index_directory: Path | None
) -> Callable[[StoredFile, ProgressCallback | None], RecordSource]:
    match file_format:
        case "csv":
            return lambda file, progress: csv.open_csv(
                file, data.columns, index_directory, progress, data.delimiter, tolerates_bad=data.bad_records > 0
            )
        case "jsonl":
            return lambda file, progress: json_lines.open_json_lines(
                file, data.columns, index_directory, progress, tolerates_bad=data.bad_records > 0
            )
        case "tfrecord":
            if data.columns:
                raise DataError("data.columns: records of TFRecord files are bytes and have no columns; leave it out")
            return lambda file, progress: tfrecord.open_tfrecord(file, index_directory, progress)
        case "parquet":
            check_module(f"{uri}: Parquet", "pyarrow")
            # Imported here because Arrow takes a fifth of a second.
            from elasticdl.data.readers import parquet

            cache = parquet.RowGroupCache()
            return lambda file, progress: parquet.open_parquet(file, data.columns, cache)
    raise AssertionError(f"a format without a reader: {file_format}")


def _offset_progress(progress: ProgressCallback | None, before: int, total: int) -> ProgressCallback | None:
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
