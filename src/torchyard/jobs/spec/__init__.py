"""The job file: its keys, parsed and checked into a `JobSpec`."""
