"""The manifest of a checkpoint: a manifest that is read renders to the same bytes, or it is corrupt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from elasticdl.checkpoint import manifest
from elasticdl.checkpoint.manifest import FileEntry, Manifest
from elasticdl.errors import CheckpointCorrupt
from tests.fuzz.scratch import file_with


def fuzz_one(data: bytes) -> None:
    _try(data)
    # The checksum rejects most inputs: try the same with a correct one.
    try:
        document = json.loads(data)
        document.pop("checksum", None)
        body = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True)
        checksum = hashlib.sha256(body.encode()).hexdigest()
        document["checksum"] = checksum
        _try((json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode())
    except (ValueError, AttributeError, TypeError, RecursionError):
        return


def _try(data: bytes) -> None:
    path = file_with(data, "manifest.json")
    try:
        parsed = manifest.read_manifest(path)
        manifest.verify_files(path.parent / "nothing-here", parsed)
    except CheckpointCorrupt:
        return
    assert parsed.render().encode() == data
    assert isinstance(parsed.step, int) and isinstance(parsed.meta, dict) and isinstance(parsed.extra, dict)


def seeds() -> Iterator[bytes]:
    entry = FileEntry(12, "ab" * 32)
    yield Manifest("checkpoint", 120, 960, {}, {}, {}).render().encode()
    yield Manifest("export", 3, 30, {"model.safetensors": entry}, {"scalars": [1, 2.5]}, {"seed": 7}).render().encode()
