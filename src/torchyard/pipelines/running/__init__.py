"""What keeps pipelines going."""
