"""Parses the arguments of HoodieStreamer.

Source: ``HoodieStreamer.Config`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakemark.errors import InvalidConfig
from streamer.argument_parser import suggestion
from streamer.migration.rule import Rule

#: An option and its value; "true" for an option without a value.
Argument = tuple[str, str]


def parse_arguments(words: Sequence[str], options: Sequence[Rule]) -> list[Argument]:
    """Parse the arguments of a job.

    Args:
        words: the arguments, as a shell passes them.
        options: the options that HoodieStreamer has.

    Returns:
        Each option by its first name, in the order of the words; an option may be repeated.

    Raises:
        InvalidConfig: an option is unknown, or its value is missing. The error contains no values,
            because they may be secret.
    """
    return list(_parsed(words, {name: rule for rule in options for name in rule.names}))


def _parsed(words: Sequence[str], options: dict[str, Rule]) -> Iterator[Argument]:
    rest = iter(words)
    for word in rest:
        rule = options.get(word)
        if rule is None:
            raise _unknown(word, options)
        if not rule.takes_value:
            yield rule.key, "true"
            continue
        value = next(rest, None)
        if value is None:
            message = f"{word} of HoodieStreamer needs a value; add it, or remove the option"
            raise InvalidConfig(message)
        yield rule.key, value


def _unknown(word: str, options: dict[str, Rule]) -> InvalidConfig:
    if not word.startswith("-"):
        return InvalidConfig(
            "the arguments of HoodieStreamer contain a word that belongs to no option; give the "
            "arguments that follow the jar on the command line of spark-submit"
        )
    name = word.partition("=")[0]
    hint = suggestion(name, options) or "; options of spark-submit do not belong here"
    return InvalidConfig(f"{name} is not an option of HoodieStreamer{hint}")
