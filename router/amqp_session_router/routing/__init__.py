"""Live routing state: routes, health checks, stickiness, statistics."""
