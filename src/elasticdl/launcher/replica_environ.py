"""The environment of replicas: the variables they inherit, and settings for the libraries they use."""

from __future__ import annotations

from collections.abc import Mapping

# By default glibc returns large blocks to the kernel at every free, and gets them again, zeroed page by page, at the
# next step: a third of the time of a step with large layers. A worker needs the same memory in every step.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}

# The identity of a process must not be inherited, neither from another job nor from a torchrun we may run under.
IDENTITY_VARIABLES = frozenset(
    {
        "ELASTICDL_JOB_DIRECTORY",
        "ELASTICDL_WORKER",
        "ELASTICDL_PS",
        "ELASTICDL_ADDRESS",
        "ELASTICDL_RUN",
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    }
)


def inherited_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without IDENTITY_VARIABLES."""
    return {name: value for name, value in environ.items() if name not in IDENTITY_VARIABLES}


def allocator_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of the C library for a worker or a ps, except those that the user has set."""
    return {name: value for name, value in ALLOCATOR.items() if name not in environ}


def instruction_set_environ(capability: str) -> dict[str, str]:
    """The variable that limits torch to this instruction set, e.g. avx2; none for ""."""
    return {"ATEN_CPU_CAPABILITY": capability} if capability else {}
