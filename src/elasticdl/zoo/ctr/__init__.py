"""A model file on records of clicks, and its data."""
