"""Why ranks ended or hang: artifacts, known causes, the root cause."""
