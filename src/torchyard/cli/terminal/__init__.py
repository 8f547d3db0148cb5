"""Print responses: tables, charts, progress bars."""
