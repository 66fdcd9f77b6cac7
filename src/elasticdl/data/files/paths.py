"""Expands a data path (a file, a directory, a glob, or several with commas) to files, and chooses their format."""

from __future__ import annotations

from functools import partial
from pathlib import PurePosixPath
from typing import Any

from elasticdl.data.files import stored_file
from elasticdl.data.files.unpack import uncompressed_name
from elasticdl.errors import DataError
from elasticdl.storage.retrying import RETRY_S

FORMATS = {
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
    "tfrecord": (".tfrecord", ".tfrecords"),
}
_COMPRESSED = (".zip", ".lz4")  # formats that cannot be unpacked


def format_from_extension(path: str) -> str | None:
    """Returns the format of a file's extension, without that of a compression, or None."""
    extension = PurePosixPath(uncompressed_name(path)).suffix.lower()
    return next((name for name, extensions in FORMATS.items() if extension in extensions), None)


def expand_paths(uri: str, *, known_only: bool, retry_s: float = RETRY_S) -> list[str]:
    """Returns the files that `uri` means: parts in the given order, directories and globs sorted by name.

    Files and folders of a directory whose names begin with "." or "_" are left out, as in Spark and Hadoop; with
    `known_only`, so are files whose extension belongs to no format. Requests to a store are repeated for `retry_s`
    seconds.
    """
    expanded = [
        path
        for part in _split_uri(uri, retry_s)
        for path in stored_file.read_with_retry(part, partial(_expand_one, part, known_only=known_only), retry_s)
    ]
    seen: set[str] = set()
    for path in expanded:
        if path in seen:
            raise DataError(f"{path}: named twice in {uri!r}; its records would count twice. Name it once")
        seen.add(path)
    return expanded


def choose_format(paths: list[str], requested: str) -> str:
    """Returns the format of all `paths`: the requested one, or with "auto" that of their extensions."""
    for path in paths:
        if PurePosixPath(path).suffix.lower() in _COMPRESSED:
            raise DataError(f"{path}: {_unknown_format_hint(path)}")
    if requested != "auto":
        return requested
    formats = {path: format_from_extension(path) for path in paths}
    for path, name in formats.items():
        if name is None:
            raise DataError(f"{path}: {_unknown_format_hint(path)}")
    first = paths[0]
    for path, name in formats.items():
        if name != formats[first]:
            raise DataError(
                f"{path} is {name} but {first} is {formats[first]}: one source has one format; use a glob that "
                f"matches only one of them"
            )
    return formats[first] or ""


def _split_uri(uri: str, retry_s: float) -> list[str]:
    # A file may have a comma or a bracket in its own name.
    if not uri.strip():
        raise DataError("the data path is empty; give a file, a directory or a glob")
    if stored_file.read_with_retry(uri, partial(_exists, uri), retry_s):
        return [uri]
    return [part.strip() for part in uri.split(",") if part.strip()]


def _expand_one(part: str, *, known_only: bool) -> list[str]:
    filesystem, path = stored_file.resolve_filesystem(part)
    if filesystem.isdir(path):
        return _list_directory(filesystem, path, part, known_only=known_only)
    if not filesystem.exists(path) and any(mark in part for mark in "*?["):
        matches: list[str] = []
        for match in sorted(str(match) for match in filesystem.glob(path)):
            matches += (
                _list_directory(filesystem, match, part, known_only=known_only) if filesystem.isdir(match) else [match]
            )
        if not matches:
            raise DataError(f"{part}: no file matches; check the pattern")
        return [filesystem.unstrip_protocol(match).removeprefix("file://") for match in matches]
    return [filesystem.unstrip_protocol(path).removeprefix("file://")]


def _list_directory(filesystem: Any, directory: str, part: str, *, known_only: bool) -> list[str]:
    inside = [path for path in sorted(filesystem.find(directory)) if not _is_hidden(path, directory)]
    if not inside:
        raise DataError(f"{part}: the directory has no data files in it")
    if known_only:
        recognized = [path for path in inside if format_from_extension(path)]
        if not recognized:
            raise DataError(f"{inside[0]}: {_unknown_format_hint(inside[0])}")
        inside = recognized
    return [filesystem.unstrip_protocol(path).removeprefix("file://") for path in inside]


def _is_hidden(path: str, directory: str) -> bool:
    return any(name.startswith((".", "_")) for name in path.removeprefix(directory).split("/") if name)


def _exists(uri: str) -> bool:
    filesystem, path = stored_file.resolve_filesystem(uri)
    return bool(filesystem.exists(path))


def _unknown_format_hint(path: str) -> str:
    extension = PurePosixPath(path).suffix.lower()
    if extension in _COMPRESSED:
        return f"{extension} files are not unpacked here; decompress it first, or compress it as .gz, .bz2, .xz or .zst"
    extension = PurePosixPath(uncompressed_name(path)).suffix.lower()
    extensions_text = ", ".join(extension for extensions in FORMATS.values() for extension in extensions)
    return (
        f"no format is known for the extension {extension or '(none)'!r} (known: {extensions_text}); "
        f"choose one with data.format: csv, jsonl, parquet, tfrecord or images"
    )
