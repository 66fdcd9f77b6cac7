"""What users see of a job: its status and result, and the curves in TensorBoard."""
