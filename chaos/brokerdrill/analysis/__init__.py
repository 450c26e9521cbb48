"""The analysis: pure functions from the ledger's DataFrames to verdicts. It reads ledgers only, never a broker."""
