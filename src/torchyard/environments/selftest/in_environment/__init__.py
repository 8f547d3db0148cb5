"""What runs in an environment's own Python: the standard library and the package under test."""
