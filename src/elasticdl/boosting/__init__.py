"""Gradient-boosted trees over XGBoost: communicators, gradients on a grid, cut points and parts of the data."""
