"""HTTP routes of jobs, run history and workers, and the scheduler's loop."""
