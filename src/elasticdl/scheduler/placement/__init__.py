"""From worker counts to nodes: free resources, where a job's workers go, and assignments of many jobs at once."""
