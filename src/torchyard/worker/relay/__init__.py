"""The MLflow and Azure ML endpoint inside a job; it spools to disk and forwards."""
