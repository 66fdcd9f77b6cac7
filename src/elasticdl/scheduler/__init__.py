"""Many jobs, one cluster: who gets how many workers, now. A policy is a pure function from a Snapshot to a Plan."""
