"""What people and protocols can do with endpoints and deployments."""
