"""Components: steps of a pipeline, kept by name and version."""
