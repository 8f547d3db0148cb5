"""Known vulnerabilities, and what an environment holds."""
