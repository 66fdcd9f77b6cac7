"""Where a submission reports notes and progress to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DataCheckProgress = Callable[[str, int, int], None]  # address of the data, bytes done, bytes in all
AnalysisProgress = Callable[[str, float], None]  # what is done, how much of it, 0 to 1

_log = logging.getLogger("elasticdl")


class SubmissionReporter:
    """Logs what a submission has to say, and shows no progress. The command line's subclass shows both."""

    def say(self, line: str) -> None:
        _log.info(line)

    @contextmanager
    def data_check_progress(self) -> Iterator[DataCheckProgress]:
        yield lambda address, done, total: None

    @contextmanager
    def analysis_progress(self) -> Iterator[AnalysisProgress]:
        yield lambda what, done: None
