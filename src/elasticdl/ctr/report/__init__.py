"""The report on a trained CTR model: measured by a separate process, drawn, written as one HTML page."""
