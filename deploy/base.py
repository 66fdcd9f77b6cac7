"""Write the digests of the images that ours is built upon: python deploy/base.py (`make base`), or --check.

Asks the registry what each Python's base is now, and writes src/elasticdl/image/recipe/bases.txt. --check says whether
every Python has one there, as a release must, and asks nobody.
"""

from __future__ import annotations

import sys
from pathlib import Path

from elasticdl.image import pinning

TARGET = Path(__file__).resolve().parents[1] / "src" / "elasticdl" / "image" / "recipe" / pinning.BASES_FILE


def main(words: list[str]) -> int:
    tags = [pinning.default_base(python) for python in pinning.PYTHONS]
    if words == ["--check"]:
        missing = [tag for tag in tags if tag not in pinning.recorded_bases(TARGET.read_text())]
        for tag in missing:
            print(f"{tag} has no digest in {TARGET.name}; run: make base")
        return int(bool(missing))
    if words:
        raise SystemExit(__doc__)
    head = TARGET.read_text().partition("\n")[0]
    TARGET.write_text("\n".join([head, *(f"{tag}@{pinning.fetch_digest(tag)}" for tag in tags)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
