"""Processes: supervisor, worker, and the handover between workers."""
