"""Azure Resource Manager's online and batch endpoints, as azure-ai-ml speaks of them."""
