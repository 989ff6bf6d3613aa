"""The settings of a hook, with their secrets, and how a kind of hook checks them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lakemark.errors import InvalidConfig

#: The longest time for which a hook waits for an answer, in seconds.
_MAX_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """The settings of one hook.

    Attributes:
        options: the options of its kind.
        headers: the headers of HTTP requests; they are never printed.
        properties: the properties of Kafka's producer; they are never printed.
    """

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check_names(
        self, kind: str, *, required: Collection[str], optional: Collection[str]
    ) -> None:
        """Check that all required options are given, and no unknown ones.

        Raises:
            InvalidConfig: an option is missing, empty or unknown.
        """
        for name in self.options:
            if name not in required and name not in optional:
                known = ", ".join([*required, *optional])
                message = f"hook {kind} has no option {name}; use one of {known}"
                raise InvalidConfig(message)
        for name in required:
            if not self.options.get(name):
                message = f"hook {kind} needs the option {name}"
                raise InvalidConfig(message)

    def refuse(self, kind: str, *names: str) -> None:
        """Check that groups of settings which the kind does not have are empty.

        Raises:
            InvalidConfig: one of them is given.
        """
        for name in names:
            if getattr(self, name):
                message = f"hook {kind} has no {name}; remove them"
                raise InvalidConfig(message)

    def seconds(self, kind: str, name: str, default: float) -> float:
        """Return an option that is a number of seconds.

        Raises:
            InvalidConfig: it is not a number above 0 and up to 60.
        """
        text = self.options.get(name)
        if text is None:
            return default
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= _MAX_TIMEOUT_S:
            message = (
                f"option {name} of hook {kind} is {text!r}; expected a number of seconds, up to "
                f"{_MAX_TIMEOUT_S:.0f}"
            )
            raise InvalidConfig(message)
        return seconds

    def one_of(self, kind: str, name: str, accepted: Collection[str], default: str) -> str:
        """Return an option that has one of a few values.

        Raises:
            InvalidConfig: it has another value.
        """
        value = self.options.get(name, default)
        if value not in accepted:
            message = f"option {name} of hook {kind} is {value!r}; use one of {', '.join(accepted)}"
            raise InvalidConfig(message)
        return value
