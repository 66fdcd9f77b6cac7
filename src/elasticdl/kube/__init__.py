"""Access to the Kubernetes API: calls with plain dictionaries, watches, leader election, probes.

No other package imports the Kubernetes client.
"""
