"""What people and protocols can do with batch endpoints and their deployments."""
