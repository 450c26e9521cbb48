"""Stage 0: the rows of a ledger's files as valid Arrow tables, and what is wrong with the others.

Local files are read by the task itself, in pieces (`pieces`); what Spark reads (other file systems) comes as batches.
"""
