import shutil

import pytest

from elasticdl.errors import PermanentError

try:
    import elasticdl.ps  # noqa: F401
except PermanentError as exc:
    if shutil.which("g++"):
        raise
    pytest.skip(str(exc), allow_module_level=True)
