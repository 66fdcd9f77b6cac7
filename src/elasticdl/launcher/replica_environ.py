"""The environment of replicas: what they inherit, and what is set for the libraries that they use."""

from __future__ import annotations

from collections.abc import Mapping

# glibc gives large blocks back to the kernel at every free and gets them again, zeroed page by page, at the next
# step: a third of the time of a step with large layers. A worker needs the same memory every step, so it keeps it.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}

# Who a process is must never be inherited: neither from another job nor from a torchrun we may run under.
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
    """The person's environment without the names that say who a process is."""
    return {name: value for name, value in environ.items() if name not in IDENTITY_VARIABLES}


def allocator_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of the C library for a worker or a ps, where the person has not chosen their own."""
    return {name: value for name, value in ALLOCATOR.items() if name not in environ}


def instruction_set_environ(capability: str) -> dict[str, str]:
    """Make torch compute with this instruction set at most, e.g. avx2; "" leaves it to the machine."""
    return {"ATEN_CPU_CAPABILITY": capability} if capability else {}
