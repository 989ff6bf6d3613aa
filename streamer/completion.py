"""Prints the scripts that complete the command line in bash, zsh and fish.

A script contains all commands, options and choices, so the shell completes a word without Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class _Option:
    """An option of a command; ``choices`` is empty if it accepts any value, such as a path."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Command:
    """A command, and the words that may follow it.

    Attributes:
        path: the words of the command, such as ``table compact``; "" for ``lakemark`` itself.
        next_words: subcommands, or the choices of the first argument, each with its help.
        options: the options of this command.
    """

    path: str
    next_words: dict[str, str] = field(default_factory=dict)
    options: tuple[_Option, ...] = ()

    def joined(self, word: str) -> str:
        """Return the path of the command that one of the next words leads to."""
        return f"{self.path} {word}".strip()


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that lets a shell complete the commands of a parser.

    Args:
        parser: the parser of the whole command line.
        shell: ``bash``, ``zsh`` or ``fish``.
    """
    commands = list(_commands(parser, ""))
    name = parser.prog
    return "\n".join(_SCRIPTS[shell](name, commands)) + "\n"


def _commands(parser: argparse.ArgumentParser, path: str) -> Iterator[_Command]:
    options = tuple(_option(action) for action in parser._actions if action.option_strings)
    arguments = [action for action in parser._actions if not action.option_strings]
    first = arguments[0] if arguments else None
    if isinstance(first, argparse._SubParsersAction):
        described = {one.dest: _plain(one.help) for one in first._choices_actions}
        yield _Command(path, described, options)
        for word, subparser in first.choices.items():
            yield from _commands(subparser, f"{path} {word}".strip())
        return
    words = () if first is None or first.choices is None else tuple(map(str, first.choices))
    yield _Command(path, dict.fromkeys(words, ""), options)
    for word in words:
        yield _Command(f"{path} {word}", {}, options)


def _option(action: argparse.Action) -> _Option:
    return _Option(
        names=tuple(action.option_strings),
        help=_plain(action.help),
        takes_value=action.nargs != 0,
        choices=tuple(map(str, action.choices or ())),
    )


def _plain(help_text: str | None) -> str:
    return (help_text or "").replace("%%", "%")


def _quoted(text: str) -> str:
    """Put a text in single quotes, for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _find_path(commands: Iterable[_Command]) -> Iterator[str]:
    """Yield the lines of a ``case`` that extends the command ``at`` by a word; for bash and zsh."""
    yield '        case "$at/$word" in'
    for command in commands:
        for word in command.next_words:
            pattern, found = _quoted(f"{command.path}/{word}"), _quoted(command.joined(word))
            yield f"            {pattern}) at={found};;"
    yield "        esac"


def _option_patterns(command: _Command, *, with_choices: bool) -> Iterator[tuple[str, _Option]]:
    """Yield the shell's pattern for each option that takes a value, with or without choices."""
    for option in command.options:
        if option.takes_value and bool(option.choices) is with_choices:
            names = "|".join(_quoted(f"{command.path}/{name}") for name in option.names)
            yield names, option


def _bash(name: str, commands: list[_Command]) -> Iterator[str]:
    yield f'# Completion of {name} in bash. In ~/.bashrc: eval "$({name} completion bash)"'
    yield f"_{name}() {{"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    local at="" words="" word'
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield from _find_path(commands)
    yield "    done"
    yield "    COMPREPLY=()"
    yield '    case "$at/$before" in'
    for command in commands:
        for pattern, option in _option_patterns(command, with_choices=True):
            choices = _quoted(" ".join(option.choices))
            yield f'        {pattern}) COMPREPLY=($(compgen -W {choices} -- "$current")); return;;'
        for pattern, _ in _option_patterns(command, with_choices=False):
            yield f"        {pattern}) return;;"
    yield "    esac"
    yield '    case "$at" in'
    for command in commands:
        options = " ".join(name for option in command.options for name in option.names)
        yield f"        {_quoted(command.path)})"
        yield f'            if [[ "$current" == -* ]]; then words={_quoted(options)}'
        yield f"            else words={_quoted(' '.join(command.next_words))}; fi;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "# If the function finds no word, bash completes a file name."
    yield f"complete -o default -F _{name} {name}"


def _zsh(name: str, commands: list[_Command]) -> Iterator[str]:
    yield f"#compdef {name}"
    yield f"# Completion of {name} in zsh. In ~/.zshrc, after compinit:"
    yield f'#   eval "$({name} completion zsh)"'
    yield f"_{name}() {{"
    yield '    local at="" word'
    yield "    local -a found"
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield from _find_path(commands)
    yield "    done"
    yield '    case "$at/${words[CURRENT-1]}" in'
    for command in commands:
        for pattern, option in _option_patterns(command, with_choices=True):
            choices = " ".join(map(_quoted, option.choices))
            yield f"        {pattern}) compadd -- {choices}; return;;"
        for pattern, _ in _option_patterns(command, with_choices=False):
            yield f"        {pattern}) _files; return;;"
    yield "    esac"
    yield '    case "$at" in'
    for command in commands:
        yield f"        {_quoted(command.path)})"
        yield "            if [[ ${words[CURRENT]} == -* ]]; then found=("
        for option in command.options:
            for one in option.names:
                yield f"                {_quoted(f'{one}:{option.help}')}"
        yield "            ); else found=("
        for word, text in command.next_words.items():
            yield f"                {_quoted(f'{word}:{text}')}"
        yield "            ); fi;;"
    yield "    esac"
    yield "    if (( ${#found} )); then _describe word found; else _files; fi"
    yield "}"
    yield "# A file on fpath is itself the function; with eval, compdef registers the function."
    yield f'if [[ "${{funcstack[1]}}" == _{name} ]]; then _{name} "$@"'
    yield f"else compdef _{name} {name}; fi"


def _fish(name: str, commands: list[_Command]) -> Iterator[str]:
    yield f"# Completion of {name} in fish: {name} completion fish | source"
    yield f"function __{name}_at"
    yield '    set -l at ""'
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        switch "$at/$word"'
    for command in commands:
        for word in command.next_words:
            yield f"            case {_in_fish(f'{command.path}/{word}')}"
            yield f"                set at {_in_fish(command.joined(word))}"
    yield "        end"
    yield "    end"
    yield '    test "$at" = "$argv[1]"'
    yield "end"
    for command in commands:
        at = f"complete -c {name} -n {_in_fish(f'__{name}_at {_in_fish(command.path)}')}"
        for word, text in command.next_words.items():
            yield f"{at} -f -a {_in_fish(word)} -d {_in_fish(text)}"
        for option in command.options:
            yield f"{at} {_fish_option(option)} -d {_in_fish(option.help)}"


def _fish_option(option: _Option) -> str:
    names = " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    )
    if not option.takes_value:
        return names
    return (
        f"{names} -x -a {_in_fish(' '.join(option.choices))}" if option.choices else f"{names} -r"
    )


def _in_fish(text: str) -> str:
    """Put a text in single quotes, inside which fish knows two escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: dict[str, Callable[[str, list[_Command]], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
