"""ElasticJobs of a cluster: each becomes the objects of a job."""
