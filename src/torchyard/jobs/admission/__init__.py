"""May a job start now? The queue's order, quotas, GPUs, and the reasons for waiting."""
