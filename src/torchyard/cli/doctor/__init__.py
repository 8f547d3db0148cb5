"""`yard doctor` and its checks."""
