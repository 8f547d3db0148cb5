"""Messages by webhook and e-mail, sent when a job has ended."""
