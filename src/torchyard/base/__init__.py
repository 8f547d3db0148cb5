"""The ground floor: errors, references, clock, settings, database, blobs, HTTP."""
