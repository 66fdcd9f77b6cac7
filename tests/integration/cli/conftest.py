"""The fixtures of the command line's unit tests: every test has a home of its own."""

from tests.integration.image.conftest import engine_script
from tests.unit.cli.conftest import _frameworks, cluster, elasticdl, home, status, zoo

__all__ = ["_frameworks", "cluster", "elasticdl", "engine_script", "home", "status", "zoo"]
