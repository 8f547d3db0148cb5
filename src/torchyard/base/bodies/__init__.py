"""Bodies of requests: read within limits, spooled to disk, parsed within limits."""
