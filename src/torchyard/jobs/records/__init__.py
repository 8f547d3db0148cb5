"""The rows of jobs, attempts and experiments, and the types that all of `jobs` shares."""
