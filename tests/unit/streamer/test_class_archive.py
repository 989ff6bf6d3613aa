"""The archive of Spark's classes is used only if it fits, and never prevents a start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from streamer import class_archive
from streamer.toolchain import JavaHome, SparkDistribution, find_java

SPARK = SparkDistribution(Path("jars"), "4.0.0", "2.13")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKEMARK_HOME", str(tmp_path))
    return tmp_path


def test_without_an_archive_java_gets_no_options() -> None:
    assert class_archive.java_options(find_java(), SPARK) == ""


def test_java_ignores_an_invalid_archive_silently() -> None:
    java = find_java()
    _lay_down(java)
    options = class_archive.java_options(java, SPARK).split()
    assert options
    reported = subprocess.run(
        [java.executable, *options, "--version"], capture_output=True, text=True
    )
    assert reported.returncode == 0
    assert "shared" not in reported.stdout and "archive" not in reported.stdout


def test_another_build_of_java_or_another_spark_has_an_archive_of_its_own(cache: Path) -> None:
    java = JavaHome(cache, 17)
    (cache / "release").write_text('JAVA_VERSION="17.0.15"')
    _lay_down(java)
    assert class_archive.java_options(java, SPARK)
    assert not class_archive.java_options(java, SparkDistribution(Path("others"), "4.0.0", "2.13"))
    (cache / "release").write_text('JAVA_VERSION="17.0.16"')
    assert not class_archive.java_options(java, SPARK)


def test_new_installation_of_spark_gets_its_own_archive(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New jars get a new archive, because a JVM ignores an archive of jars with other times."""
    monkeypatch.setattr(class_archive, "_warm_up", _write_classes)
    java, spark = JavaHome(cache, 17), SparkDistribution(cache, "4.0.0", "2.13")
    jar = cache / "spark-core.jar"
    jar.write_bytes(b"jar")
    (cache / "gone.jar").symlink_to(cache / "nowhere.jar")
    first = class_archive.make(java, spark)
    assert first is not None and class_archive.make(java, spark) == first
    os.utime(jar, (0, 0))
    assert not class_archive.java_options(java, spark)
    second = class_archive.make(java, spark)
    assert second is not None and str(second) in class_archive.java_options(java, spark)
    assert first.exists(), "two environments may take turns"


def test_of_many_archives_those_stay_that_were_used_last(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "_warm_up", _write_classes)
    java = JavaHome(cache, 17)
    half_made = cache / "classes" / "making-x"
    half_made.mkdir(parents=True)
    sparks = [SparkDistribution(Path(f"spark-{n}"), "4.0.0", "2.13") for n in range(5)]
    for made_s, spark in enumerate(sparks[:-1]):
        archive = class_archive.make(java, spark)
        assert archive is not None
        os.utime(archive, (made_s, made_s))
    assert class_archive.java_options(java, sparks[0]), "the oldest is used again"
    class_archive.make(java, sparks[-1])
    kept = [spark for spark in sparks if class_archive.java_options(java, spark)]
    assert kept == [sparks[0], *sparks[2:]]
    assert not half_made.exists(), "by a process that was killed"


def _write_classes(options: str) -> None:
    Path(options.rpartition("=")[2]).write_bytes(b"classes")


def _lay_down(java: JavaHome) -> None:
    place = class_archive._path(java, SPARK)
    place.parent.mkdir()
    place.write_bytes(b"no archive")
