"""``lakemark compare``: proves that two tables have the same rows, or shows what differs."""

from __future__ import annotations

import argparse

from lakemark.errors import InvalidConfig
from streamer.commands.location import open_named_table
from streamer.comparison.choice import compare_at_common_position, compare_at_times
from streamer.comparison.comparison import ComparisonRules, TableState
from streamer.comparison.report import ComparedTables


def execute(arguments: argparse.Namespace) -> int:
    """Print what is equal and what differs.

    Returns:
        0 if the tables have the same columns and the same rows, else 1.

    Raises:
        InvalidConfig: an option is not valid, or the rows cannot be matched.
        NoCommonPosition: no commits of the tables have the same offsets.
        HudiError: a table cannot be read.
    """
    times = (arguments.old_as_of, arguments.new_as_of)
    if (times[0] is None) != (times[1] is None):
        message = "--old-as-of and --new-as-of are used together; give both, or none"
        raise InvalidConfig(message)
    old, new = (
        open_named_table(path, arguments.storage, arguments.merger)
        for path in (arguments.old, arguments.new)
    )
    for table in (old, new):
        if table.schema is None:
            message = f"{table.location.url} has no commit yet, so there is nothing to compare"
            raise InvalidConfig(message)
    rules = rules_of(arguments)
    if times[0] is None:
        compared = compare_at_common_position(old, new, rules)
    else:
        states = TableState(old, times[0]), TableState(new, times[1])
        compared = compare_at_times(*states, rules)
    return show_comparison(compared, as_json=arguments.json)


def rules_of(arguments: argparse.Namespace) -> ComparisonRules:
    """Return the rules that the options give."""
    return ComparisonRules(
        key=tuple(arguments.key or ()),
        ignored=tuple(arguments.ignore or ()),
        most_examples=arguments.examples,
    )


def show_comparison(compared: ComparedTables, *, as_json: bool) -> int:
    """Print a comparison; return the exit code: 0 if the tables are equal, else 1."""
    if as_json:
        print(compared.to_json())
    else:
        print(*compared.lines(), sep="\n")
    return 0 if compared.found.is_equal else 1
