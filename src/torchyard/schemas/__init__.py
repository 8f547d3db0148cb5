"""JSON Schemas of the files that people write, for editors; `make docs` writes them."""
