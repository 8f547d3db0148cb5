"""The file of a sweep, and the jobs that its trials are."""
