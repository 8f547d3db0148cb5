"""Validate, audit and release environments, by jobs of their own."""
