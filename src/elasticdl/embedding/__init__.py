"""Embedding layers of torch whose rows lie in tables: of the ps in a job, of this process alone."""
