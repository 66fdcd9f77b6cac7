"""Shares one cluster among many jobs. A policy is a pure function from a Snapshot to an AllocationPlan."""
