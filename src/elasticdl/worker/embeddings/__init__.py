"""Embedding tables as the steps of a worker use them."""
