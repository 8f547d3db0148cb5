"""The rows of batch endpoints, their deployments and jobs."""
