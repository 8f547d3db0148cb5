"""What keeps validations and releases going."""
