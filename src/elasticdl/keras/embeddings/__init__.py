"""Keras embedding layers whose rows may be on ps."""
