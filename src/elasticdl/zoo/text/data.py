"""The help texts inside Python as two Parquet files of short passages: python -m elasticdl.zoo.text.data DIRECTORY"""

from __future__ import annotations

import sys
from pathlib import Path

CONTEXT = 64
TEST_SHARE = 10  # one of this many passages is in the test file


def cut_passages(context: int = CONTEXT) -> list[str]:
    """Returns the text in pieces of `context` characters and the next one, all ASCII."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    text = text.encode("ascii", "ignore").decode("ascii")
    return [text[start : start + context + 1] for start in range(0, len(text) - context, context)]


def write_data(directory: Path, context: int = CONTEXT) -> tuple[Path, Path]:
    """Writes train.parquet and test.parquet, always the same with the same Python; returns their paths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    passages = cut_passages(context)
    directory.mkdir(parents=True, exist_ok=True)
    train = [text for number, text in enumerate(passages) if number % TEST_SHARE]
    for name, texts in (("train.parquet", train), ("test.parquet", passages[::TEST_SHARE])):
        pq.write_table(pa.table({"text": texts}), directory / name, row_group_size=1024)
    return directory / "train.parquet", directory / "test.parquet"


if __name__ == "__main__":
    for path in write_data(Path(sys.argv[1] if len(sys.argv) > 1 else "data")):
        print(path)
