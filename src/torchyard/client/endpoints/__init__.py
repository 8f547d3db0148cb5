"""Online endpoints and deployments of the workspace, over HTTP."""
