"""Columns to features: statistics, transformations, treatments, and the front that binds them."""
