"""Deletion, retention and garbage collection of what jobs left."""
