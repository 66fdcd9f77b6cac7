"""A small causal transformer on the text of Python's own documentation."""
