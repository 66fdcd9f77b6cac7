"""Every error of ElasticDL, split by what the caller can do about it.

ElasticDLError
├── SpecError              the job description is wrong; fix it          (CLI exit 2)
│   ├── ModelError           the model file does not keep the contract
│   ├── JobNotFound          there is no job of this name, or it was deleted
│   ├── NameInUse            another job has this name
│   └── DataError            the data cannot be read as described
│       ├── BadRecord          one record cannot be read or processed
│       ├── TooManyBadRecords  more of them than the job allows
│       └── DataUnavailable    a file, database or store did not become available in time (CLI exit 1)
├── TransientError         try again later
│   ├── MasterUnreachable
│   ├── DatabaseUnavailable  a database does not answer
│   ├── FileUnavailable      a file cannot be read now
│   ├── StoreUnavailable     an object store does not answer
│   └── WaitTimedOut         a job that was waited for is not over yet
├── PermanentError         retrying cannot help; the job stops           (CLI exit 1)
│   ├── JobFailed            a job that was waited for failed, or was stopped
│   ├── PoisonShard          a shard failed on every worker that tried it
│   ├── CheckpointCorrupt    there is no usable checkpoint
│   ├── CheckpointFailed     a checkpoint or export could not be written
│   ├── LossNotFinite        the loss became NaN or infinite
│   ├── ReplicasDiverged     workers that should hold the same state do not
│   ├── ImageBuildFailed     a container engine could not build or push an image
│   ├── AccessDenied         wrong token or certificate
│   ├── StateDamaged         a state file of a job or of the scheduler is damaged
│   ├── JournalDamaged       the master's journal is damaged
│   ├── JournalUnreadable    another version of ElasticDL wrote it
│   └── RunSuperseded        another run of the job has begun; this process is of an earlier one
└── ReplicaLost            expected; becomes an event, never a crash
    └── RoundBroken          a member of the round is gone; a new round follows
        └── StateTransferFailed  a newcomer got no state from its donor; another may have it
"""

from __future__ import annotations

import errno
from typing import TypeGuard


class ElasticDLError(Exception):
    """Root of the tree. `exit_code` is the exit code of a command that it ends."""

    exit_code = 1


class SpecError(ElasticDLError):
    """The job description is wrong. The message says where, what was expected, and what was received."""

    exit_code = 2


class ModelError(SpecError):
    """The model file does not keep the contract. Names file, function and expected signature."""


class JobNotFound(SpecError):
    """There is no job of this name, or it was deleted."""


class NameInUse(SpecError):
    """Another job has this name."""


class DataError(SpecError):
    """The data cannot be read as described. Names the file and the position."""


class BadRecord(DataError):
    """One record cannot be read, or a user's function fails on it. Names the record."""


class TooManyBadRecords(DataError):
    """More records are bad than the job allows."""

    exit_code = 1


class DataUnavailable(DataError):
    """A file, database or object store could not be read for as long as the job waits. The job may be resumed."""

    exit_code = 1


class TransientError(ElasticDLError):
    """Trying again later may help."""


class MasterUnreachable(TransientError):
    """The master does not answer at its address."""


class DatabaseUnavailable(TransientError):
    """A database does not answer, or a connection to it broke."""


class FileUnavailable(TransientError):
    """A file cannot be read now, because of its disk, its server, or a lack of descriptors."""


class StoreUnavailable(TransientError):
    """An object store did not answer for as long as it was tried."""


class WaitTimedOut(TransientError):
    """A job that was waited for is not over yet. It continues."""


class PermanentError(ElasticDLError):
    """Retrying cannot help; the job stops."""


class JobFailed(PermanentError):
    """A job that was waited for failed, or was stopped. The message says why."""


class PoisonShard(PermanentError):
    """A shard failed on every worker that tried it: the data is at fault, not the worker."""


class CheckpointCorrupt(PermanentError):
    """There is no usable checkpoint where one is expected."""


class CheckpointFailed(PermanentError):
    """A checkpoint or an export could not be written."""


class LossNotFinite(PermanentError):
    """The loss became NaN or infinite. Names the step and the logical rank."""


class ReplicasDiverged(PermanentError):
    """Workers that should hold the same state do not. Names the tensor, the step and the workers."""


class ImageBuildFailed(PermanentError):
    """A container engine could not build or push an image. Has the end of its output."""


class AccessDenied(PermanentError):
    """The master refused the token or the certificate."""


class StateDamaged(PermanentError):
    """A state file of a job or of the scheduler is damaged."""


class JournalDamaged(PermanentError):
    """The master's journal is damaged. It is not changed."""

    exit_code = 65  # EX_DATAERR: restarting the master cannot help

    def __init__(self, offset: int, reason: str, location: str = "the journal") -> None:
        super().__init__(
            f"{location} is damaged at byte {offset:,}: {reason}. It is kept unchanged; `elasticdl journal verify JOB` "
            "shows what is lost. Continue from the newest checkpoint with --resume"
        )
        self.offset = offset
        self.reason = reason


class JournalUnreadable(PermanentError):
    """The master's journal, or an event in it, is of another version of ElasticDL. It is not changed."""

    exit_code = 65

    def __init__(self, writer: str, location: str = "the journal") -> None:
        super().__init__(
            f"{location} was written by {writer}. Continue with that version or a later one, or from the newest "
            "checkpoint with --resume"
        )
        self.writer = writer


class RunSuperseded(PermanentError):
    """Another run of the job has begun: this process belongs to an earlier one and must end."""


class ReplicaLost(ElasticDLError):
    """A replica is gone, which is expected."""


class RoundBroken(ReplicaLost):
    """A member of the round is gone; wait for the next round."""


class StateTransferFailed(RoundBroken):
    """A newcomer got no state from its donor; another donor may help."""

    def __init__(self, donor: str, reason: str) -> None:
        super().__init__(reason)
        self.donor = donor


_MACHINE_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE}


def is_machine_error(problem: BaseException | None) -> bool:
    """Whether the cause is the machine: no memory, descriptors or disk space, or a device that failed.

    The job is not wrong, and may work later or on another machine.
    """
    while problem is not None:
        if isinstance(problem, MemoryError) or (isinstance(problem, OSError) and problem.errno in _MACHINE_ERRNOS):
            return True
        problem = problem.__cause__
    return False


def is_job_error(problem: BaseException) -> TypeGuard[SpecError]:
    """Whether the job itself is wrong, so that starting it again cannot help."""
    return isinstance(problem, SpecError) and not is_machine_error(problem)
