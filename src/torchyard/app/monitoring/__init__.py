"""What monitoring systems ask the server: metrics for Prometheus, liveness, readiness."""
