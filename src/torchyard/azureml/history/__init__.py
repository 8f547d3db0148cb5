"""Azure ML's run history service."""
