"""Ids of jobs and replicas. Ids are text and ranks are numbers; a rank is never used as an id."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)  # "worker-3"
PsId = NewType("PsId", str)  # "ps-0"
ReplicaId = WorkerId | PsId
