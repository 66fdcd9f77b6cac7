"""The fixtures of the command line's tests: a home directory for each test, a zoo, a cluster."""

from tests.unit.cli.conftest import _frameworks, cluster, elasticdl, home, status, zoo

__all__ = ["_frameworks", "cluster", "elasticdl", "home", "status", "zoo"]
