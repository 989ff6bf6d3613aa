"""Completion works in each installed shell."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.cli import SHELLS, main, parser

#: Completes the words of the command line, and prints one candidate a line.
PROGRAMS = {
    "bash": """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_lakemark
printf '%s\\n' "${COMPREPLY[@]}"
""",
    # Functions of zsh's completion system, which works at a prompt only.
    "zsh": """
compdef() { registered="$*" }
compadd() { shift; for one; do [[ $one == ${words[CURRENT]}* ]] && print -r -- $one; done; true }
_describe() { compadd -- ${${(P)2}%%:*} }
_files() { print files }
source "$1"; shift
[[ $registered == "_lakemark lakemark" ]] || exit 1
words=("$@"); CURRENT=$#
_lakemark
""",
    "fish": """
source $argv[1]
complete -C (string join -- ' ' $argv[2..-1]) | string split -f1 \\t
true
""",
}


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


def complete(shell: str, line: str, capsys: pytest.CaptureFixture[str], folder: Path) -> list[str]:
    assert main(["completion", shell]) == 0
    script, program = folder / f"script.{shell}", folder / f"program.{shell}"
    script.write_text(capsys.readouterr().out)
    program.write_text(PROGRAMS[shell])
    command = [shell, str(program), str(script), *line.split(" ")]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr
    return sorted(line for line in ended.stdout.splitlines() if line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lakemark ta", ["table"]),
        ("lakemark table co", ["compact"]),
        ("lakemark --debug table sav", ["savepoint"]),
        ("lakemark table compact --run", ["--run", "--runner"]),
        ("lakemark table compact t --runner ", ["local", "spark"]),
        ("lakemark query t --type in", ["incremental"]),
        ("lakemark checkpoint re", ["reset"]),
        ("lakemark checkpoint set --st", ["--storage"]),
        ("lakemark completion ", ["bash", "fish", "zsh"]),
    ],
)
def test_shell_completes_commands_options_and_choices(
    shell: str,
    line: str,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert complete(shell, line, capsys, tmp_path) == words


@pytest.mark.parametrize("line", ["lakemark query ", "lakemark query t --out ", "lakemark run "])
def test_path_is_completed_as_a_file(
    shell: str, line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "orders.yaml").write_text("")
    found = complete(shell, line, capsys, tmp_path)
    if shell == "bash":  # completes a file itself if a function finds nothing
        assert found == []
    else:
        assert ("files" if shell == "zsh" else "orders.yaml") in found


def test_every_option_is_in_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    options = set(_options(parser()))
    assert "--retain-commits" in options
    for shell in SHELLS:
        main(["completion", shell])
        script = capsys.readouterr().out
        shown = {f"-l {one[2:]} " if shell == "fish" else one for one in options if one[1] == "-"}
        assert [one for one in shown if one not in script] == []


def _options(one: argparse.ArgumentParser) -> Iterator[str]:
    for action in one._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _options(sub)
