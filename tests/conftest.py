"""What all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that others use too makes any example slow now and then; how long a test may take is pytest's to watch.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

# Files of the toy product, which tests put into a checkout of their own.
collect_ignore_glob = ["toy/added/*"]
