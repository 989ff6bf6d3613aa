"""Replaces the secrets of a pipeline in all output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from streamer.config.masking import holds_secret, passwords_in, redact_values, sounds_secret
from streamer.config.settings import Setting

#: Shorter words in a secret are not replaced alone: they could occur in ordinary texts.
_MIN_WORD_LENGTH = 8

#: A value that a longer text, such as a JAAS setting, assigns to a word such as ``password``.
_ASSIGNED = re.compile(
    r"((?:pass(?:word|wd)?|pwd|secret|token|key|signature)\w*[\"']?\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s\"';,&]+)",
    re.IGNORECASE,
)


def build_redactor(*configs: BaseModel) -> Callable[[str], str]:
    """Build a function that replaces the secrets of the configurations in a text by ``***``.

    A setting is secret by its name or by its value. The value may be in the pipeline file, in an
    environment variable or in another file. Secrets inside a value are replaced, too: a value that
    is assigned to a word such as ``password``, and a password or token before a host. In any URL of
    the text, everything before the host is replaced. A secret in a file may be replaced at any
    time: the former and the new one are redacted.
    """
    return _Redactor(configs)


class _Redactor:
    """Replaces the secrets of configurations, and reads them again when their files change."""

    def __init__(self, configs: Sequence[BaseModel]) -> None:
        self._configs = configs
        self._files = {
            Path(one.text).expanduser()
            for config in configs
            for _, one in _settings(config)
            if one.origin == "file"
        }
        self._known: set[str] = set()
        self._version: object = None
        self._redact = redact_values(())
        self._read()

    def __call__(self, text: str) -> str:
        if self._files and self._find_version() != self._version:
            self._read()
        return self._redact(text)

    def _read(self) -> None:
        self._version = self._find_version()  # first, so that a later change is noticed
        self._known |= {secret for config in self._configs for secret in _secrets(config)}
        self._redact = redact_values(self._known)

    def _find_version(self) -> object:
        return [_file_version(path) for path in self._files]


def _file_version(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _secrets(config: BaseModel) -> Iterator[str]:
    for name, setting in _settings(config):
        with suppress(
            LookupError, OSError, UnicodeDecodeError
        ):  # the run reports the missing secret
            value = setting.resolve()
            if setting.is_secret:
                yield from (
                    word for word in (value, *value.split()) if len(word) >= _MIN_WORD_LENGTH
                )
            if sounds_secret(name) or holds_secret(value):
                yield value
                yield from assigned_in(value)
                yield from passwords_in(value)


def assigned_in(value: str) -> Iterator[str]:
    """Yield what a value, such as a JAAS setting, assigns to a word such as ``password``."""
    yield from (match[2].strip("\"'") for match in _ASSIGNED.finditer(value))


def _settings(part: object) -> Iterator[tuple[str, Setting]]:
    """Yield all settings of a section and of its subsections, with their names."""
    if isinstance(part, tuple):
        for one in part:
            yield from _settings(one)
    if isinstance(part, BaseModel):
        part = dict(part)
    if not isinstance(part, Mapping):
        return
    for name, value in part.items():
        if isinstance(value, Setting):
            yield str(name), value
        else:
            yield from _settings(value)
