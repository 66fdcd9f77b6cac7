"""Traces of jobs and the workloads in them: CSV formats, Pollux's and Gavel's measurements, synthetic arrivals."""
