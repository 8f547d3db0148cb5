"""`yard model`."""
