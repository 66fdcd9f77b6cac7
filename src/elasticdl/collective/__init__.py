"""Elastic all-reduce: rounds, a reduction with fixed bits, hand-over of the state."""
