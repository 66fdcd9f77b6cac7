"""The example of each transformation's docstring is true."""

from __future__ import annotations

import doctest
import sys

import pytest

from elasticdl import features
from elasticdl.features.transforms import ALL_TRANSFORMS, Transform


@pytest.mark.parametrize("kind", ALL_TRANSFORMS, ids=lambda kind: kind.__name__)
def test_the_examples_of_a_transformation_are_what_it_does(kind: type[Transform]) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(kind, kind.__name__, module=sys.modules[kind.__module__], globs=dict(vars(features)))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    results = [runner.run(test) for test in tests]

    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0
