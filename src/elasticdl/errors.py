"""Every error of ElasticDL, split by what the caller can do about it.

ElasticDLError
├── SpecError              the job description is wrong; fix it          (CLI exit 2)
│   ├── ModelError           the model file does not keep the contract
│   └── DataError            the data cannot be read as described
│       └── DataUnavailable    a database or store was waited for in vain (CLI exit 1)
├── TransientError         try again later
│   ├── MasterUnreachable
│   ├── DatabaseAway         a database does not answer
│   └── StoreUnavailable     an object store does not answer
├── PermanentError         retrying cannot help; the job stops           (CLI exit 1)
│   ├── PoisonShard          a shard failed on every worker that tried it
│   ├── BudgetExhausted      workers keep failing
│   ├── CheckpointCorrupt    no usable checkpoint where one was promised
│   ├── CheckpointFailed     a checkpoint or export could not be written
│   ├── LossNotFinite        the loss became NaN or infinite
│   ├── ReplicasDiffer       workers that should hold the same state do not
│   ├── ImageFailed          a container engine could not build or push an image
│   └── AccessDenied         wrong token or certificate
└── ReplicaLost            expected in our trade; becomes an event, never a crash
    ├── RoundBroken          a member of the round is gone; a new round follows
    └── Preempted            does not count against the failure budget
"""

from __future__ import annotations


class ElasticDLError(Exception):
    """Root of the tree. `exit_code` is what a command ends with."""

    exit_code = 1


class SpecError(ElasticDLError):
    """The job description is wrong. The message says where, what was expected, and what came."""

    exit_code = 2


class ModelError(SpecError):
    """The model file does not keep the contract. Names file, function and expected signature."""


class DataError(SpecError):
    """The data cannot be read as described. Names the file and the position."""


class DataUnavailable(DataError):
    """A database or an object store did not answer for as long as the job waits. The job may be resumed."""

    exit_code = 1


class TransientError(ElasticDLError):
    """Trying again later may help."""


class MasterUnreachable(TransientError):
    """The master does not answer at its address."""


class DatabaseAway(TransientError):
    """A database does not answer, or went away in the middle of an answer."""


class StoreUnavailable(TransientError):
    """An object store did not answer for as long as it was tried."""


class PermanentError(ElasticDLError):
    """Retrying cannot help; the job stops."""


class PoisonShard(PermanentError):
    """A shard failed on every worker that tried it: the data is at fault, not the worker."""


class BudgetExhausted(PermanentError):
    """Workers kept failing for reasons of their own."""


class CheckpointCorrupt(PermanentError):
    """No usable checkpoint where one was promised."""


class CheckpointFailed(PermanentError):
    """A checkpoint or an export could not be written."""


class LossNotFinite(PermanentError):
    """The loss became NaN or infinite. Names the step and the logical rank."""


class ReplicasDiffer(PermanentError):
    """Workers that should hold the same state do not. Names the tensor, the step and the workers."""


class ImageFailed(PermanentError):
    """A container engine could not build or push an image. Carries the end of what it said."""


class AccessDenied(PermanentError):
    """The master refused the token or the certificate."""


class ReplicaLost(ElasticDLError):
    """A replica is gone. Expected in our trade."""


class RoundBroken(ReplicaLost):
    """A member of the round is gone; wait for the next round."""


class Preempted(ReplicaLost):
    """The replica was taken away from outside; not a failure of its own."""
