"""Brokerdrill: break message brokers on purpose and prove what they keep."""
