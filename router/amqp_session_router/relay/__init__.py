"""The data path of open sessions: fast path, splice, blind splice, session journal."""
