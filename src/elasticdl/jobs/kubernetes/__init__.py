"""Jobs as pods in a namespace of a Kubernetes cluster."""
