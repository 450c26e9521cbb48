"""Promises: what each is called, which values it takes, what can put it in doubt, and its words for people."""
