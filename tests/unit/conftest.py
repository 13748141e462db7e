"""Settings of the unit tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast a busy machine makes examples says nothing about the code.
settings.register_profile("jsclient", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jsclient")
