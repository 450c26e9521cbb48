"""Across weeks: the table of results, what it says of each scenario, and whether something got worse."""
