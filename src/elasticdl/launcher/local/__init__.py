"""Replicas as processes of this machine: each job has a launcher process for its master and its replicas."""
