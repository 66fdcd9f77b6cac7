"""Training with rows on real ps equals training with rows that are parameters of the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import native

native.require()

from elasticdl.ps.client.local_tables import LocalTables  # noqa: E402
from elasticdl.ps.client.ps_client import PsClient  # noqa: E402
from elasticdl.worker.embeddings.hybrid import LocalTableStore  # noqa: E402
from tests.integration.ps.cluster import Cluster  # noqa: E402
from tests.unit.worker.embeddings.test_hybrid import assert_same, trained  # noqa: E402


class There(LocalTableStore):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(LocalTables(seed=0))
        self._cluster = cluster

    def open(self) -> PsClient:
        return self._cluster.client()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("count", [1, 3])
def test_embeddings_on_ps_train_like_those_of_a_plain_layer(kind: Any, count: int) -> None:
    cluster = Cluster(count)
    plain, _ = trained(kind, None)

    moved, tables = trained(kind, There(cluster))

    assert_same(plain, moved, tables)
    cluster.close()
