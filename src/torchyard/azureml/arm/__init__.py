"""Azure Resource Manager's resources: jobs, computes, datastores and versioned assets."""
