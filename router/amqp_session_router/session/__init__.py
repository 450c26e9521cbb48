"""Sessions from accept to close, and the listeners that they come from."""
