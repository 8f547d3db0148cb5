"""What every other package imports: errors, references, clock, settings, database, blobs, HTTP."""
