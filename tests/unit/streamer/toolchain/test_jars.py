"""The real Ivy downloads jars from a small repository on this disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from lakemark.errors import InvalidConfig
from streamer.toolchain import (
    JarsNotFound,
    JarsUnavailable,
    cache_home,
    find_spark,
    resolve,
    spark_kafka_packages,
)
from streamer.toolchain.jars import IVY_SETTINGS_VARIABLE


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository with ``org.example:app:1.0``, which needs ``base`` and ``extra``."""
    root = tmp_path / "repository"
    publish(root, "base")
    publish(root, "extra")
    publish(root, "app", needs=("base", "extra"))
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{root.as_uri()}"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv(IVY_SETTINGS_VARIABLE, str(settings))
    return root


def publish(root: Path, artifact: str, needs: tuple[str, ...] = ()) -> None:
    folder = root / "org" / "example" / artifact / "1.0"
    folder.mkdir(parents=True)
    (folder / f"{artifact}-1.0.jar").write_bytes(artifact.encode())
    dependencies = "".join(
        "<dependency><groupId>org.example</groupId>"
        f"<artifactId>{need}</artifactId><version>1.0</version></dependency>"
        for need in needs
    )
    (folder / f"{artifact}-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        f"<artifactId>{artifact}</artifactId><version>1.0</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


APP = "org.example:app:1.0"


def test_jars_come_with_what_they_need_and_stay_without_the_repository(
    repository: Path, tmp_path: Path
) -> None:
    jars = resolve([APP], tmp_path / "jars", excluded_modules=["extra"])
    assert [jar.name for jar in jars] == ["app-1.0.jar", "base-1.0.jar"]
    assert jars[0].read_bytes() == b"app"
    repository.rename(tmp_path / "gone")
    assert resolve([APP], tmp_path / "jars", excluded_modules=["extra"]) == jars
    jars[1].unlink()
    with pytest.raises(JarsNotFound, match=r"has no org\.example:app:1\.0, which"):
        resolve([APP], tmp_path / "jars", excluded_modules=["extra"])
    (tmp_path / "gone").rename(repository)
    assert resolve([APP], tmp_path / "jars", excluded_modules=["extra"]) == jars
    assert jars[1].read_bytes() == b"base"
    assert {p.name for p in (tmp_path / "jars").iterdir() if p.is_dir()} == {jars[0].parent.name}


def test_missing_dependency_is_named_and_the_network_is_not_blamed(
    repository: Path, tmp_path: Path
) -> None:
    """The error names the missing dependency, and does not blame the network.

    Connectors of some versions of Spark need a jar that a repository lacks.
    """
    (repository / "org/example/extra/1.0/extra-1.0.jar").unlink()
    (repository / "org/example/extra/1.0/extra-1.0.pom").unlink()
    with pytest.raises(JarsNotFound) as refused:
        resolve([APP], tmp_path / "jars")
    assert refused.value.missing == ("org.example:extra:1.0",)
    assert "network" not in str(refused.value) and "pip install" in str(refused.value)


def test_repository_that_does_not_answer_is_reported_as_such(
    repository: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "ivysettings.xml"
    text = settings.read_text().replace(repository.as_uri(), "http://127.0.0.1:9/maven")
    settings.write_text(text)
    with pytest.raises(JarsUnavailable, match=r"(?s)Connection refused.*with network access"):
        resolve([APP], tmp_path / "jars")


@pytest.mark.usefixtures("repository")
def test_processes_that_want_the_same_jars_all_get_them(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from streamer.toolchain import resolve\n"
        "print(*(jar.read_text() for jar in resolve(sys.argv[1:2], pathlib.Path(sys.argv[2]))))"
    )
    command = [sys.executable, "-c", program, APP, str(tmp_path / "jars")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["app base extra\n"] * 3


@pytest.mark.parametrize("coordinate", ["", "app", "a:b", "a:b:c:d", 'a:b:"/><x'])
def test_invalid_maven_coordinate_is_refused(coordinate: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="not a Maven coordinate"):
        resolve([coordinate], tmp_path)


def test_the_connector_is_that_of_the_installed_spark() -> None:
    spark = find_spark()
    assert spark.version == pyspark.__version__
    assert spark.scala == ("2.12" if spark.version.startswith("3.") else "2.13")
    assert (
        spark_kafka_packages("4.0.0", "2.13") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    )


def test_a_spark_home_without_spark_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=str(tmp_path)):
        find_spark({"SPARK_HOME": str(tmp_path)})


def test_the_cache_follows_its_variables() -> None:
    assert cache_home({"LAKEMARK_HOME": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_home({"XDG_CACHE_HOME": "/b"}) == Path("/b/lakemark")
    assert cache_home({}) == Path.home() / ".cache" / "lakemark"
