"""Jobs: what was asked, how it goes, what it said and what it made."""
