"""The exported preprocessor in a process without ElasticDL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from elasticdl.features.preprocessing import standalone
from tests.unit.features.preprocessing.test_preprocessor import front


def test_the_serving_file_needs_only_numpy(tmp_path: Path) -> None:
    front().save(tmp_path)
    (tmp_path / "preprocessor.py").write_bytes(Path(standalone.__file__).read_bytes())
    code = (
        "from preprocessor import Preprocessor; import sys\n"
        "print(Preprocessor('preprocessor.json').encode([{'n': '7'}])['ids'][0, 0] >= 0); "
    )
    code += "assert not any(name.startswith('elasticdl') for name in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("True\n", "")
