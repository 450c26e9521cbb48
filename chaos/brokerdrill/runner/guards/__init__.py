"""Guards: what may end a run early, each a coroutine beside the run's way that returns why."""
