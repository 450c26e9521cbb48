"""The control plane: service, verbs, the control socket and its client."""
