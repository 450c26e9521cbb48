"""Scenarios: what to run, break, wait for and promise."""
