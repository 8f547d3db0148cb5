"""The job that scores."""
