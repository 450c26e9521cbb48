"""Drills that nobody wrote: drawn from a seed, steered by what was not seen yet, judged by the promises, and shrunk."""
