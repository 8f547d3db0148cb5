"""OCI images: writing them, and bringing them to a registry."""
