"""Who may connect: limits and the authorisation hook."""
