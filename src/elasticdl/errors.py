"""Every error of ElasticDL, split by what the caller can do about it.

ElasticDLError
├── SpecError              the job description is wrong; fix it          (CLI exit 2)
│   ├── ModelError           the model file does not keep the contract
│   ├── JobNotFound          there is no job of this name, or it was deleted
│   ├── NameInUse            another job has this name
│   └── DataError            the data cannot be read as described
│       ├── BadRecord          one record cannot be read or understood
│       ├── TooManyBadRecords  more of them than the job allows
│       └── DataUnavailable    a file, database or store was waited for in vain (CLI exit 1)
├── TransientError         try again later
│   ├── MasterUnreachable
│   ├── DatabaseUnavailable  a database does not answer
│   ├── FileUnavailable      a file cannot be read at the moment
│   ├── StoreUnavailable     an object store does not answer
│   └── WaitTimedOut         a job that was waited for is not over yet
├── PermanentError         retrying cannot help; the job stops           (CLI exit 1)
│   ├── JobFailed            a job that was waited for failed, or was stopped
│   ├── PoisonShard          a shard failed on every worker that tried it
│   ├── CheckpointCorrupt    no usable checkpoint where one was promised
│   ├── CheckpointFailed     a checkpoint or export could not be written
│   ├── LossNotFinite        the loss became NaN or infinite
│   ├── ReplicasDiverged     workers that should hold the same state do not
│   ├── ImageBuildFailed     a container engine could not build or push an image
│   ├── AccessDenied         wrong token or certificate
│   ├── StateDamaged         a file that a job or the scheduler keeps is not what was written
│   ├── JournalDamaged       the master's journal is not what was written
│   ├── JournalUnreadable    another version of ElasticDL wrote it
│   └── RunSuperseded        another run of the job has begun; this process is of an earlier one
└── ReplicaLost            expected in our trade; becomes an event, never a crash
    └── RoundBroken          a member of the round is gone; a new round follows
        └── StateTransferFailed  a newcomer got no state from its donor; another may have it
"""

from __future__ import annotations

import errno
from typing import TypeGuard


class ElasticDLError(Exception):
    """Root of the tree. `exit_code` is what a command ends with."""

    exit_code = 1


class SpecError(ElasticDLError):
    """The job description is wrong. The message says where, what was expected, and what came."""

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
    """One record cannot be read, or a user's function fails on it. Names the place."""


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
    """A database does not answer, or went away in the middle of an answer."""


class FileUnavailable(TransientError):
    """A file cannot be read at the moment: its disk, its server, or this process's descriptors are at fault."""


class StoreUnavailable(TransientError):
    """An object store did not answer for as long as it was tried."""


class WaitTimedOut(TransientError):
    """A job that was waited for is not over yet. It goes on."""


class PermanentError(ElasticDLError):
    """Retrying cannot help; the job stops."""


class JobFailed(PermanentError):
    """A job that was waited for failed, or was stopped. The message says why."""


class PoisonShard(PermanentError):
    """A shard failed on every worker that tried it: the data is at fault, not the worker."""


class CheckpointCorrupt(PermanentError):
    """No usable checkpoint where one was promised."""


class CheckpointFailed(PermanentError):
    """A checkpoint or an export could not be written."""


class LossNotFinite(PermanentError):
    """The loss became NaN or infinite. Names the step and the logical rank."""


class ReplicasDiverged(PermanentError):
    """Workers that should hold the same state do not. Names the tensor, the step and the workers."""


class ImageBuildFailed(PermanentError):
    """A container engine could not build or push an image. Carries the end of what it said."""


class AccessDenied(PermanentError):
    """The master refused the token or the certificate."""


class StateDamaged(PermanentError):
    """A file that a job or the scheduler keeps is not what was written."""


class JournalDamaged(PermanentError):
    """The master's journal is not what was written. Nothing of it is changed."""

    exit_code = 65  # EX_DATAERR: starting the master again cannot help

    def __init__(self, offset: int, why: str, where: str = "the journal") -> None:
        super().__init__(
            f"{where} is damaged at byte {offset:,}: {why}. It is kept as it is; `elasticdl journal verify JOB` says "
            "what is lost. Go on from the newest checkpoint with --resume"
        )
        self.offset = offset
        self.why = why


class JournalUnreadable(PermanentError):
    """The master's journal, or an event in it, is of another version of ElasticDL. Nothing of it is changed."""

    exit_code = 65

    def __init__(self, written_by: str, where: str = "the journal") -> None:
        super().__init__(
            f"{where} was written by {written_by}. Go on with the version that wrote it or a later one, or from the "
            "newest checkpoint with --resume"
        )
        self.written_by = written_by


class RunSuperseded(PermanentError):
    """Another run of the job has begun: this process belongs to an earlier one and must end."""


class ReplicaLost(ElasticDLError):
    """A replica is gone. Expected in our trade."""


class RoundBroken(ReplicaLost):
    """A member of the round is gone; wait for the next round."""


class StateTransferFailed(RoundBroken):
    """A newcomer got no state from its donor; another donor may help."""

    def __init__(self, donor: str, why: str) -> None:
        super().__init__(why)
        self.donor = donor


_MACHINE_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE}


def is_machine_error(problem: BaseException | None) -> bool:
    """Whether it began with want of memory, descriptors or room, or with a device that failed: nobody's job is wrong,
    and the same may work later or elsewhere."""
    while problem is not None:
        if isinstance(problem, MemoryError) or (isinstance(problem, OSError) and problem.errno in _MACHINE_ERRNOS):
            return True
        problem = problem.__cause__
    return False


def is_job_error(problem: BaseException) -> TypeGuard[SpecError]:
    """Whether to start it again, later or elsewhere, cannot help."""
    return isinstance(problem, SpecError) and not is_machine_error(problem)
