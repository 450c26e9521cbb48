"""What a run leaves in its directory beside its events: run.json, the workers' spools, logs, and what they prove."""
