"""Errors, values and interfaces that every layer uses."""
