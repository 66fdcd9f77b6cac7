"""Container images: the one ElasticDL ships, and those of model directories on top of it."""
