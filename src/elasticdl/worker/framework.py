"""Which framework a model file is written in, and its contract."""

from __future__ import annotations

from elasticdl.errors import SpecError
from elasticdl.model import contract as contracts
from elasticdl.model import definition, source
from elasticdl.model.check import check_computing
from elasticdl.model.contract import Contract
from elasticdl.model.source import Framework
from elasticdl.spec import JobKind, JobSpec, Strategy


def load_contract(spec: JobSpec) -> Contract:
    """The contract of the job's model file. TensorFlow is imported for files in Keras only."""
    assert spec.model is not None
    tree = source.parse(definition.locate(spec.model).file)
    if source.framework(tree) is Framework.TORCH:
        return contracts.load(spec.model, spec.kind)
    if spec.workers.device != "cpu":
        raise SpecError(f"workers.device: {spec.workers.device}: Keras models train on the processor; use --device=cpu")
    check_computing(spec, Framework.KERAS)
    from elasticdl.keras import contract as keras_contracts
    from elasticdl.keras import runtime
    from elasticdl.keras.placing import Placing

    runtime.fix_numerics(spec.workers.threads, reproducible=spec.plan.reproducible)
    on_ps = spec.strategy is Strategy.PS and spec.kind is JobKind.TRAINING
    wanted = Placing(on_ps, spec.ps.embeddings if on_ps else "none", spec.ps.embedding_bytes)
    return keras_contracts.load(spec.model, spec.kind, wanted)
