"""Experiments of the original ElasticDL, repeated: run, judge, draw."""
