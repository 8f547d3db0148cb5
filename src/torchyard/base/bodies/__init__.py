"""Bodies of requests, read and parsed within limits; files as bodies of responses."""
