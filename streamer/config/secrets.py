"""The secrets of a pipeline, to keep them out of what is written about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from pydantic import BaseModel

from streamer.config.masking import (
    MASK,
    holds_secret,
    passwords_in,
    sounds_secret,
    without_user_info,
)
from streamer.config.settings import Setting

#: What stands behind a word for a secret inside a longer value, such as a JAAS configuration.
_ASSIGNED = re.compile(
    r"((?:pass(?:word|wd)?|pwd|secret|token|key|signature)\w*[\"']?\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s\"';,&]+)",
    re.IGNORECASE,
)


def redaction(config: BaseModel) -> Callable[[str], str]:
    """A function that puts ``***`` where a text repeats a secret of the configuration.

    Secrets are the values of settings that are secret by their name or their text, wherever they
    come from, what is assigned to a word such as ``password`` inside of them, the password or the
    token before a host in them, and what precedes the host in any URL of the text.
    """
    return _without(_secrets(config))


def option_redaction(options: Iterable[str]) -> Callable[[str], str]:
    """The same for options of a store as a command line gives them, ``NAME=VALUE`` each."""
    pairs = (option.partition("=") for option in options)
    return _without(
        secret
        for name, _, value in pairs
        if sounds_secret(name) or holds_secret(value)
        for secret in (value, *passwords_in(value))
    )


def _without(secrets: Iterable[str]) -> Callable[[str], str]:
    known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    values = re.compile("|".join(map(re.escape, known))) if known else None

    def redacted(text: str) -> str:
        shown = values.sub(MASK, text) if values else text
        return without_user_info(shown)

    return redacted


def _secrets(config: BaseModel) -> Iterator[str]:
    for name, setting in _settings(config):
        with suppress(LookupError, OSError, UnicodeDecodeError):  # the run tells that itself
            value = setting.resolve()
            if sounds_secret(name) or holds_secret(value):
                yield value
                yield from (match[2].strip("\"'") for match in _ASSIGNED.finditer(value))
                yield from passwords_in(value)


def _settings(part: object) -> Iterator[tuple[str, Setting]]:
    """All settings with their names, in whatever section they stand."""
    if isinstance(part, BaseModel):
        part = dict(part)
    if not isinstance(part, Mapping):
        return
    for name, value in part.items():
        if isinstance(value, Setting):
            yield str(name), value
        else:
            yield from _settings(value)
