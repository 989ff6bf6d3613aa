from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.submit_properties import JAVA_OPTIONS, properties_text, submit_properties

SECRET = "geheim-4711"


def folder_and_arguments() -> tuple[Path, list[str]]:
    """The folder of the files, and the arguments for ``spark-submit``."""
    words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
    assert words[0] == "--properties-file"
    return Path(words[1]).parent, words[2:]


@pytest.mark.parametrize("given", [None, "--packages a:b:1 pyspark-shell"])
def test_only_this_user_can_read_them_and_they_go_away(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    if given is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    conf = {"spark.x": SECRET, JAVA_OPTIONS: f"-Dplain=1 -Dmy.password='{SECRET} x' -Xss4m"}
    with pytest.raises(ZeroDivisionError), submit_properties(conf):
        folder, arguments = folder_and_arguments()
        assert arguments == shlex.split(given or "pyspark-shell")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
        assert modes == {"spark.properties": 0o600, "java.options": 0o600}
        assert (folder / "java.options").read_text() == f"'-Dmy.password={SECRET} x'"
        options = read_properties((folder / "spark.properties").read_text())[JAVA_OPTIONS]
        assert options.split() == [
            "-Dplain=1",
            "-Xss4m",
            f"-XX:VMOptionsFile={folder / 'java.options'}",
        ]
        _ = 1 / 0
    assert not folder.exists()
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == given


def test_java_options_without_a_secret_stay_as_they_are() -> None:
    options = "-Da='b  c' -XX:+UseG1GC"
    with submit_properties({JAVA_OPTIONS: options}):
        folder, _ = folder_and_arguments()
        text = (folder / "spark.properties").read_text()
        assert [file.name for file in folder.iterdir()] == ["spark.properties"]
    assert read_properties(text)[JAVA_OPTIONS] == options


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_text_is_read_back(conf: dict[str, str]) -> None:
    assert read_properties(properties_text(conf)) == conf


def read_properties(text: str) -> dict[str, str]:
    """Parse properties as Java does, if the only escapes are numbers of characters."""
    pairs = (line.split("=", 1) for line in text.splitlines() if line)
    return {unescaped(name): unescaped(value) for name, value in pairs}


def unescaped(text: str) -> str:
    units = text.encode("ascii").decode("unicode_escape")
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
