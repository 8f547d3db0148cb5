"""Batch endpoints: score many files with a model, by a job."""
