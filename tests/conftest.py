"""Fixtures that every test may ask for, by name."""

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
# The default is Hypothesis' own: random examples, or, where $CI is set, the same every time.
settings.register_profile(
    "lakemark", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("lakemark")
