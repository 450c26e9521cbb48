"""One module a product: how to read a live role, a queue's depth, and the exact times in its log."""
