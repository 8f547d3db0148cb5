"""The command line: groups, options, YAML documents, completion."""
