"""`yard`, the command: reads documents, prints answers, decides nothing."""
