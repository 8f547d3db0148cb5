"""What runs inside the user's Python, 3.6 and later; standard library only."""
