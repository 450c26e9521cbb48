"""Faults: what can be broken on purpose. `FAULTS` names each; `executor` applies, verifies and heals them."""
