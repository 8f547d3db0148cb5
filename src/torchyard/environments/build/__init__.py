"""Make the folder of an environment, whole or not at all."""
