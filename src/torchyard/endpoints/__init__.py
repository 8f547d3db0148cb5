"""Online endpoints: models behind an address, their deployments, keys and traffic."""
