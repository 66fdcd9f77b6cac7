"""The scheduler of a Kubernetes cluster: ElasticJobs in, their wishes out."""
