"""Fixtures that every test may ask for, by name."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.fixtures.kafka",
    "tests.fixtures.oracle",
    "tests.fixtures.quick_s3",
    "tests.fixtures.s3",
    "tests.fixtures.schema_registry",
    "tests.fixtures.spark",
    "tests.fixtures.storage",
]

# A busy machine may stop for seconds anywhere: how long an example takes proves nothing.
settings.register_profile(
    "lakemark",
    settings.get_profile("ci" if os.environ.get("LAKEMARK_SAME_EXAMPLES") else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lakemark")
