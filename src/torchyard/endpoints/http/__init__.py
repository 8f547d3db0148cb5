"""Routes of endpoints and deployments."""
