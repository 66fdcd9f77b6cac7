"""Click-through-rate models with tables on parameter servers; models.py lists them."""
