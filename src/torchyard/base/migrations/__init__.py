"""The schema's history: one file a step under `versions/`, run by Alembic.

Always: a file that was released never changes. Every step adds to the one before: tables, columns
and indexes. A new column may be null or has a default in the database.
"""
