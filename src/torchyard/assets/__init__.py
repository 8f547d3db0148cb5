"""Assets with a name and versions: what data, models, environments and components share."""
