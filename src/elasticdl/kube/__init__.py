"""How we speak to Kubernetes: calls with plain dictionaries, lists that are watched. The only user of its client."""
