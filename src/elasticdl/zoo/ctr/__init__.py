"""Click-through-rate models with tables on parameter servers: DeepFM, and Wide & Deep."""
