"""Logs, metrics and the HTTP status endpoints."""
