"""What data, models and jobs were made of, and what was made of them."""
