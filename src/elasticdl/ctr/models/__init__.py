"""Click-through-rate models with embedding tables on parameter servers; `catalog` lists them."""
