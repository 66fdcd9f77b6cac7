"""The results of simulations: metrics, tables, figures and files."""
