"""The native cores; everything else about the package stands in pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

import nanobind
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_NANOBIND = Path(nanobind.include_dir()).parent
# A release must have the native core: `make wheels` and cibuildwheel set this, and a failing compiler fails the build.
_REQUIRED = os.environ.get("ELASTICDL_REQUIRE_NATIVE", "0") == "1"


def _extension(name: str, source: str) -> Extension:
    return Extension(
        name,
        sources=[source, str(_NANOBIND / "src" / "nb_combined.cpp")],
        depends=[str(header) for header in sorted(Path("native/src").rglob("*.h"))],
        include_dirs=[nanobind.include_dir(), str(_NANOBIND / "ext" / "robin_map" / "include")],
        # -ffp-contract=off: the same results for every instruction set the rules are compiled for.
        extra_compile_args=[
            "-std=c++17", "-O3", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno",
            "-fno-strict-aliasing", "-Wall", "-Wextra",
        ],
        extra_link_args=["-s"],
        # Training without parameter servers and without hashed or looked-up text needs no compiler. What does need it
        # raises an error that says so; CSV files are then counted by DuckDB.
        optional=not _REQUIRED,
    )  # fmt: skip


class BuildExtensions(build_ext):
    def get_source_files(self) -> list[str]:
        """Only ours: nanobind's source lies in its own package, and a manifest must not name an absolute path."""
        return [path for path in super().get_source_files() if not Path(path).is_absolute()]


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=[
        _extension("elasticdl.ps._native", "native/src/module.cpp"),
        _extension("elasticdl.features._native", "native/src/features_module.cpp"),
        _extension("elasticdl.boosting._native", "native/src/boosting_module.cpp"),
    ],
)
