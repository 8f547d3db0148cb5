"""What runs inside an instance, in the Python of the deployment's environment."""
