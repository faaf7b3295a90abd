"""Monitors' messages, Z85, JSON, text and bytes."""
