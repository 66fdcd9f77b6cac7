"""The master as a pod: its journal, its status and its replicas lie in the cluster."""
