"""Replaces secrets: by environment variables in the pipeline file, by ``***`` in messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from streamer.config.masking import holds_secret, passwords_in, redact_values, sounds_secret
from streamer.config.secrets import assigned_in

_NOT_OF_A_VARIABLE = re.compile(r"[^A-Z0-9]+")

#: Values that are not secret, whatever their property is called.
_HARMLESS = ("true", "false")

#: The reference to an environment variable, as the pipeline file writes it.
Reference = dict[str, str]


def reference_to(variable: str) -> Reference:
    """Return the reference to an environment variable."""
    return {"env": variable}


def without_secret(prefix: str, name: str, value: str) -> str | Reference:
    """Return a value, or a reference to an environment variable if the value is or may be secret.

    Args:
        prefix: the first word of the variable, such as ``KAFKA``.
        name: the name of the property.
        value: the value of the property.
    """
    if not (sounds_secret(name) or holds_secret(value)):
        return value
    return reference_to(f"{prefix}_{_NOT_OF_A_VARIABLE.sub('_', name.upper())}")


def variables_in(value: object) -> Iterator[str]:
    """Yield the environment variables to which a value of the pipeline file refers."""
    if isinstance(value, Mapping):
        if value.keys() == {"env"}:
            yield str(value["env"])
        for inner in value.values():
            yield from variables_in(inner)


def build_job_redactor(values: Mapping[str, str]) -> Callable[[str], str]:
    """Build a function that replaces the secrets of a job in a text by ``***``.

    In any URL of the text, everything before the host is replaced.

    Args:
        values: the value of each option and property.
    """
    return redact_values(
        secret
        for name, value in values.items()
        if value.lower() not in _HARMLESS
        for secret in _secrets_of(name, value)
    )


def _secrets_of(name: str, value: str) -> Iterator[str]:
    if sounds_secret(name) or holds_secret(value):
        yield value
        yield from passwords_in(value)
    if sounds_secret(name):  # else it may be a query that compares a column token
        yield from assigned_in(value)
