"""The load of a run: which worker runs which clients, the worker processes on the load hosts, and their clocks."""
