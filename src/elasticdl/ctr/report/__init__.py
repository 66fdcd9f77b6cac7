"""What a trained model of clicks is worth, as one page: measured by a process of its own, drawn, written."""
