"""What people do inside a running job: shells and services, through a tunnel to the server."""
