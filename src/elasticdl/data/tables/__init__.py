"""Tables of DuckDB, PostgreSQL and MaxCompute as sources of numbered rows."""
