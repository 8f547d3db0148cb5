"""The files of jobs: logs, artifacts, inputs, named outputs."""
