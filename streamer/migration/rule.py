"""A rule: what becomes of one option or property of HoodieStreamer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streamer.config.masking import holds_secret, sounds_secret
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets

#: Ends a key that stands for all keys with this beginning.
PREFIX_MARK = "*"

Convert: TypeAlias = Callable[[str], object]


class NotConvertible(ValueError):
    """The value of a property has no counterpart; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Direct:
    """The value becomes the value of one setting.

    Attributes:
        setting: the path of the setting.
        convert: converts the text of the value; raises ``NotConvertible``.
    """

    setting: str
    convert: Convert


@dataclass(frozen=True, slots=True)
class Combined:
    """Code decides together with other properties what becomes of the value.

    Attributes:
        counterpart: the settings, in Markdown.
    """

    counterpart: str


@dataclass(frozen=True, slots=True)
class NoEffect:
    """The value has no effect on the pipeline.

    Attributes:
        reason: why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NoCounterpart:
    """A pipeline file cannot express the value.

    Attributes:
        remedy: what to do instead.
        changes_rows: see ``Missing``.
        unless: the values that ask for nothing, in lower case; among them is the default.
    """

    remedy: str
    changes_rows: bool = False
    unless: tuple[str, ...] = ()


Effect: TypeAlias = Direct | Combined | NoEffect | NoCounterpart


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one option or property.

    Attributes:
        key: the name; one that ends with ``*`` is the beginning of several names.
        effect: what becomes of the value.
        aliases: other names, of which HoodieStreamer prefers ``key``.
        takes_value: whether an option is followed by a value.
    """

    key: str
    effect: Effect
    aliases: tuple[str, ...] = ()
    takes_value: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return (self.key, *self.aliases)

    def apply(self, name: str, value: str) -> Outcome:
        """Return what becomes of a value that no other code has used."""
        effect = self.effect
        if isinstance(effect, NoEffect):
            return Harmless((name,), effect.reason)
        if isinstance(effect, NoCounterpart):
            if value.strip().lower() in effect.unless:
                return Harmless((name,), f"{value.strip() or 'an empty value'} asks for nothing")
            return Missing((name,), effect.remedy, effect.changes_rows)
        assert isinstance(effect, Direct), f"no code has used {name}"
        try:
            return Sets(effect.setting, effect.convert(value.strip()), (name,))
        except NotConvertible as reason:
            return Missing((name,), f"{shown(name, value)}: {reason}")


def shown(name: str, value: str) -> str:
    """Return a value for a message; ``***`` if it is or may be secret."""
    return "***" if sounds_secret(name) or holds_secret(value) else value


def whole_number(text: str) -> int:
    """Convert a number.

    Raises:
        NotConvertible: the text is not a number.
    """
    try:
        return int(text)
    except ValueError:
        message = "this is not a number; correct it"
        raise NotConvertible(message) from None


def yes_or_no(text: str) -> bool:
    """Convert a boolean as Java does: everything but ``true`` is false."""
    return text.lower() == "true"


def one_of(words: Mapping[str, object], otherwise: str) -> Convert:
    """Return a function that converts the words of a property, in upper or lower case.

    Args:
        words: the value of each word, which is in lower case.
        otherwise: what to do about other words.
    """

    def convert(text: str) -> object:
        if text.lower() not in words:
            raise NotConvertible(otherwise)
        return words[text.lower()]

    return convert
