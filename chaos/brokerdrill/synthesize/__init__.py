"""`brokerdrill synthesize`: ledgers with known anomalies in known places."""
