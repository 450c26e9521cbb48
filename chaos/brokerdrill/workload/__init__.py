"""The load: real clients of each protocol in worker processes, which write the ledger.

Shipped to load hosts as it is: these modules import the standard library, `brokerdrill.ledger`,
`brokerdrill.base.errors` and, in `jms` and its subclasses only, JPype.
"""
