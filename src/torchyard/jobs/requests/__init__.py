"""From a request to a job or a run: checked, pinned, stored, followed."""
