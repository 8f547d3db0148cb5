"""What a person's folders become on their way to the server: snapshots, uploaded by content."""
