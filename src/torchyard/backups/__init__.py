"""A home folder and its records as one file or folder, and back into either database."""
