"""Passes settings to a JVM in files, because every user can read a command line with ``ps``.

The command line contains only the name of a file that only this user can read. The file is deleted
when Spark has started.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from lakemark.storage.scratch import scratch_folder, temporary_writes
from streamer.config.masking import holds_secret

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

#: An environment variable with JVM options. Spark's launcher passes them before all other options.
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_NO_ARGUMENTS = "pyspark-shell"
_TO_ESCAPE = re.compile(r"[^\w./-]", re.ASCII)


@contextmanager
def submit_properties(conf: Mapping[str, str]) -> Iterator[None]:
    """Pass these settings to the JVM that PySpark launches in the block.

    The settings are added to the machine's ``spark-defaults.conf``, and override its values. As
    usual, the arguments in ``PYSPARK_SUBMIT_ARGS`` override both.
    """
    given = os.environ.get(_ARGUMENTS)
    with scratch_folder("launch") as folder:
        file = folder / "spark.properties"
        _write(file, f"{_defaults()}\n\n{properties_text(_hide_java_options(conf, file.parent))}")
        arguments = f"--properties-file {shlex.quote(str(file))} {given or _NO_ARGUMENTS}"
        with environment_variable(_ARGUMENTS, arguments):
            yield


@contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, and restore it after the block."""
    given = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


def properties_text(conf: Mapping[str, str]) -> str:
    """Format settings as a Java properties file, and escape characters as needed."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items())


def _hide_java_options(conf: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """Move Java options that contain secrets to a file, and pass the file's name instead."""
    shown = dict(conf)
    hidden: list[str] = []
    for name in (_DEFAULT_JAVA_OPTIONS, JAVA_OPTIONS):
        options = _words(conf.get(name, ""))
        secret = [one for one in options if one.startswith("-") and holds_secret(one)]
        if secret:
            hidden += secret
            shown[name] = shlex.join(one for one in options if one not in secret)
    if hidden:
        file = folder / "java.options"
        _write(file, shlex.join(hidden))
        option = shlex.quote(f"-XX:VMOptionsFile={file}")
        shown[JAVA_OPTIONS] = f"{shown.get(JAVA_OPTIONS, '')} {option}"
    return shown


def _words(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:  # an unclosed quote, for which Spark's launcher reports an error
        return []


def _defaults() -> str:
    """Return the text of ``spark-defaults.conf``; "" if there is no such file."""
    folder = os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf"
    try:
        return (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _spark_home() -> Path:
    return Path(str(_find_spark_home()))  # type: ignore[no-untyped-call]


def _write(file: Path, text: str) -> None:
    with (
        temporary_writes("the settings of Spark"),
        open(
            os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as f,
    ):
        f.write(text)


def _escaped(text: str) -> str:
    return _TO_ESCAPE.sub(_as_utf16, text)


def _as_utf16(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
