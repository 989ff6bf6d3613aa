"""An ``argparse`` parser that suggests the nearest command or option for an unknown one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

#: Ends the options of a command.
_END: Final = "--"


class SuggestingParser(argparse.ArgumentParser):
    """A parser whose errors name the nearest known command, value or option.

    Args:
        passed_on: the name under which the words after ``--`` are kept as a list, without being
            parsed, because they are arguments of another program. None to parse them.
        options: the arguments of ``argparse.ArgumentParser``.
    """

    def __init__(self, *, passed_on: str | None = None, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._passed_on = passed_on

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments; refuse unknown options while the subcommand's options are known."""
        words = list(sys.argv[1:] if args is None else args)
        end = words.index(_END) if self._passed_on and _END in words else len(words)
        parsed, unknown = super().parse_known_args(words[:end], namespace)
        if unknown:
            self.error(self._unknown_arguments(unknown))
        if self._passed_on:
            setattr(parsed, self._passed_on, words[end + 1 :])
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        message = f"unknown value {value!r}{suggestion(str(value), choices)}"
        raise argparse.ArgumentError(action, f"{message} (accepted: {', '.join(choices)})")

    def _unknown_arguments(self, unknown: Sequence[str]) -> str:
        first = unknown[0].partition("=")[0]
        options = [name for name in self._option_string_actions if name.startswith("--")]
        near = suggestion(first, options) if first.startswith("-") else ""
        return f"unrecognized arguments: {' '.join(unknown)}{near}"


def suggestion(text: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` with the known word nearest to a text; "" if none is near."""
    import difflib

    # The dashes of options are not compared, because they make all short options similar.
    words = {one.lstrip("-"): one for one in known}
    near = difflib.get_close_matches(text.lstrip("-"), words, n=1)
    return f"; did you mean {words[near[0]]}?" if near else ""
