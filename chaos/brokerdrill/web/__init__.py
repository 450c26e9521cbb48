"""The page for the room where a game day is held: the run that goes on, live, and what was held before."""
