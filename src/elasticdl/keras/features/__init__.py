"""Transforms as Keras layers, the preprocessor as a layer, and feature columns."""
