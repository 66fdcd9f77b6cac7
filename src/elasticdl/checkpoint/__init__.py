"""Checkpoints: the copy of a training state, and how it is kept, verified and exported."""
