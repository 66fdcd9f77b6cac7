"""Checkpoints: the image of a training state, and how it is kept, verified and exported."""
