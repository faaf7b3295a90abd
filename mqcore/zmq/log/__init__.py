"""Log records as messages."""
