"""Figures, HTML reports and TensorBoard files."""
