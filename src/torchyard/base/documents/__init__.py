"""What all documents have in common: jobs, assets, endpoints, computes."""
