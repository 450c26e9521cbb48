"""Histories of other tools: Jepsen's and Chaos Toolkit's, read into ledgers and written from them."""
