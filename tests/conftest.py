"""Fixtures that every test may ask for, by name."""

pytest_plugins = [
    "tests.fixtures.kafka",
    "tests.fixtures.oracle",
    "tests.fixtures.s3",
    "tests.fixtures.spark",
    "tests.fixtures.storage",
]
