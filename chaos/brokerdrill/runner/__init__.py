"""The runner: from a deployed topology to a finished run directory. `run` goes the way, each part of it is a module."""
