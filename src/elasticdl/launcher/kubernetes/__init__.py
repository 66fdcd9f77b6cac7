"""Replicas as pods: the objects of a job, and the launcher that lives in its master."""
