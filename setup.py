"""The native core; everything else about the package stands in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import nanobind
from setuptools import Extension, setup

_NANOBIND = Path(nanobind.include_dir()).parent

setup(
    ext_modules=[
        Extension(
            "elasticdl.ps._native",
            sources=["native/src/module.cpp", str(_NANOBIND / "src" / "nb_combined.cpp")],
            depends=[str(header) for header in sorted(Path("native/src").glob("*.h"))],
            include_dirs=[nanobind.include_dir(), str(_NANOBIND / "ext" / "robin_map" / "include")],
            # -ffp-contract=off: the same results for every instruction set the rules are compiled for.
            extra_compile_args=[
                "-std=c++17", "-O3", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno",
                "-fno-strict-aliasing", "-Wall", "-Wextra",
            ],
            extra_link_args=["-s"],
            # Training without parameter servers needs no compiler; with them, `elasticdl.ps` says what is missing.
            optional=True,
        )
    ]
)  # fmt: skip
