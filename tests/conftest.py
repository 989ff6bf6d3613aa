"""Fixtures that every test may ask for, by name."""

pytest_plugins = [
    "tests.fixtures.kafka",
    "tests.fixtures.oracle",
    "tests.fixtures.quick_s3",
    "tests.fixtures.s3",
    "tests.fixtures.schema_registry",
    "tests.fixtures.spark",
    "tests.fixtures.storage",
]
