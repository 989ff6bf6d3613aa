"""The choice of Java, and the message if no Java is suitable."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamer.toolchain import JavaNotFound, find_java


def java_that_says(folder: Path, version: str, modules: str = "jdk.incubator.vector@0") -> Path:
    """Create a Java home whose command prints this version and these modules."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    settings = f"    java.home = {folder}\\n    java.specification.version = {version}\\n"
    command.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --list-modules ]; then echo "java.base@0\n{modules}"; exit; fi\n'
        f'printf "Property settings:\\n{settings}" >&2\n'
    )
    command.chmod(0o755)
    return folder


def test_java_of_this_machine_is_found() -> None:
    java = find_java()
    assert 17 <= java.version <= 23
    assert java.executable.is_file()


def test_java_home_comes_first_then_path_then_the_usual_folders(tmp_path: Path) -> None:
    named = java_that_says(tmp_path / "named", "21")
    on_path = java_that_says(tmp_path / "on_path", "17")
    usual = java_that_says(tmp_path / "jvm" / "java-17", "17")
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(environ, [str(tmp_path / "jvm/*")]).home == named
    del environ["JAVA_HOME"]
    assert find_java(environ, [str(tmp_path / "jvm/*")]).home == on_path
    assert find_java({"PATH": ""}, [str(tmp_path / "jvm/*")]).home == usual


@pytest.mark.parametrize(
    ("version", "modules", "reason"),
    [
        ("1.8", "jdk.incubator.vector@0", "is Java 8"),
        ("11", "jdk.incubator.vector@0", "is Java 11"),
        ("25", "jdk.incubator.vector@0", "is Java 25"),
        ("17", "java.sql@0", "lacks the module jdk.incubator.vector"),
    ],
)
def test_unsuitable_java_is_skipped(
    tmp_path: Path, version: str, modules: str, reason: str
) -> None:
    unfit = java_that_says(tmp_path / "unfit", version, modules)
    fit = java_that_says(tmp_path / "jvm" / "fit", "21")
    environ = {"JAVA_HOME": str(unfit), "PATH": ""}
    assert find_java(environ, [str(tmp_path / "jvm/*")]).home == fit
    with pytest.raises(JavaNotFound, match=reason):
        find_java(environ, [])


def test_missing_java_message_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("not a program")
    with pytest.raises(JavaNotFound) as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, [])
    message = str(caught.value)
    assert f"{tmp_path}/bin/java: does not start" in message
    for line in ("apt-get install openjdk-17", "dnf install", "brew install", "sdk install java"):
        assert line in message
