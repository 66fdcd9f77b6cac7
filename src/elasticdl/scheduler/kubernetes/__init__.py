"""The scheduler of a Kubernetes namespace: reads ElasticJobs and pods, writes how many workers each job gets."""
