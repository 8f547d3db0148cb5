"""Models in other formats, made by jobs."""
