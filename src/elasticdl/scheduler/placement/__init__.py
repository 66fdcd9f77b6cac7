"""Placement: free resources, the nodes of one job's workers, and assignments of many jobs at once."""
