"""Run history: metrics, parameters, tags and properties."""
