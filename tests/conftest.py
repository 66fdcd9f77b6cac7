"""Settings of all tests: how many examples a property tries, that none is timed, and which tests run where and when."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# Machines are shared: an example that took long once says nothing, so no profile has a deadline.
# `make test` tries few examples of each property; `make test-thorough` tries many (--hypothesis-profile=thorough).
settings.register_profile("quick", deadline=None, max_examples=30, stateful_step_count=30)
settings.register_profile("thorough", deadline=None, max_examples=200, stateful_step_count=50)
settings.load_profile("quick")

# Files whose names begin so share a server, which one process starts: the API server of Kubernetes, and S3.
SHARING_A_SERVER = ("tests/integration/kube/", "tests/integration/test_s3_")
ROOT = Path(__file__).parents[1]
KUBE_TESTS = ROOT / "tests" / "integration" / "kube"
UNIT_TESTS = ROOT / "tests" / "unit"


# A shell ignores SIGINT in what it starts in the background, and processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ServerScheduling(LoadFileScheduling):
    """Tests of one file, and files that share a server, run in the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((prefix for prefix in SHARING_A_SERVER if file.startswith(prefix)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ServerScheduling:
    return ServerScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, and unit tests last: many short files keep all processes busy until the end.

    Apart from that, files and the tests of each stay in the random order that they have when this is called.
    """
    items.sort(key=lambda item: (UNIT_TESTS in item.path.parents, KUBE_TESTS not in item.path.parents))
