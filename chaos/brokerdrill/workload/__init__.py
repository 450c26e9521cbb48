"""The load: real clients of each protocol in worker processes, which write the ledger.

Shipped to load hosts as it is: these modules import the standard library, JPype (`core_jms` only), `brokerdrill.ledger`
and `brokerdrill.errors`, nothing else.
"""
