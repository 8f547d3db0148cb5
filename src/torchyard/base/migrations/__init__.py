"""The schema's history: one file a step under `versions/`, run by Alembic."""
