"""The evidence of a run: the ledger's contract and those who write, fetch and compact it."""
