"""Azure Blob Storage's protocol and the artifact service over datastores."""
