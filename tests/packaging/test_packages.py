"""The wheel and the sdist, installed into clean environments, as a user would."""

from __future__ import annotations

import json
import shlex
import subprocess
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from lakemark.own_packages import PACKAGES
from tests.packaging.environments import (
    ROOT,
    Environment,
    Packages,
    build_packages,
    install,
    interpreters,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Creates, writes, maintains and reads a table with the names of ``import lakemark`` alone.
FIRST_HOUR = """
import importlib.util, sys
import lakemark
import pyarrow as pa

for absent in ("pyspark", "pandas", "confluent_kafka", "prometheus_client"):
    assert importlib.util.find_spec(absent) is None, absent
schema = pa.schema([("id", pa.string()), ("amount", pa.int64()), ("at", pa.int64())])
orders = lakemark.create("orders", schema=schema, record_key=["id"], ordering=["at"])
orders.upsert(pa.table({"id": ["a", "b"], "amount": [1, 2], "at": [1, 1]}))
orders.upsert(pa.table({"id": ["a"], "amount": [3], "at": [2]}))
orders.delete(["b"])
orders.compact()
rows = lakemark.open("orders").scan(columns=["id", "amount"]).to_table().to_pylist()
assert rows == [{"id": "a", "amount": 3}], rows
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return build_packages(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def plain(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(str(packages.wheel), tmp_path_factory.mktemp("plain") / "env")


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.splitlines())


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_wheel_holds_the_packages_and_the_licence_and_nothing_else(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as archive:
        names = set(archive.namelist())
    own = {name for name in names if ".dist-info/" not in name}
    assert own == tracked(*PACKAGES)
    assert "lakemark/py.typed" in own
    rest = {name.partition(".dist-info/")[2] for name in names - own}
    licences = {"licenses/LICENSE", "licenses/NOTICE"}
    assert rest == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", *licences}


def test_sdist_holds_what_builds_the_wheel_and_the_documents(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {"LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "SECURITY.md", "pyproject.toml"}
    made = {"PKG-INFO", ".gitignore"}
    assert names == tracked(*PACKAGES, "docs", "examples") | top | made


def test_any_spark_from_3_5_to_4_0_is_accepted_where_it_is_already_there(
    packages: Packages,
) -> None:
    required = metadata(packages.wheel).get_all("Requires-Dist") or []
    (spark,) = [
        one
        for one in map(Requirement, required)
        if one.name == "pyspark" and one.marker and one.marker.evaluate({"extra": "streamer"})
    ]
    for version in ("3.5.0", "3.5.1", "3.5.4", "3.5.7", "4.0.0"):
        assert version in spark.specifier, version
    for version in ("3.4.4", "4.1.0"):
        assert version not in spark.specifier, version


def test_metadata_names_the_extras_and_the_versions_of_python(packages: Packages) -> None:
    found = metadata(packages.wheel)
    assert set(found.get_all("Provides-Extra") or ()) == {
        *("streamer", "sql", "zookeeper", "dynamodb", "msk", "hive", "glue", "openlineage"),
        *("opentelemetry", "demo", "dev"),
    }
    python = SpecifierSet(found["Requires-Python"])
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in (found.get_all("Classifier") or ())
        assert version in python
    assert "3.10" not in python


@pytest.mark.parametrize("version", interpreters())
def test_plain_package_writes_and_reads_tables(
    packages: Packages, version: str, tmp_path: Path
) -> None:
    environment = install(str(packages.wheel), tmp_path / "env", interpreters()[version])
    written = environment.run("python", "-c", FIRST_HOUR, cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    for command, shown in (
        (["query", "orders", "--json", "--columns", "id,amount"], '{"id": "a", "amount": 3}\n'),
        (["table", "compact", "orders"], "nothing to compact\n"),
        (["--version"], f"lakemark {metadata(packages.wheel)['Version']}\n"),
    ):
        ended = environment.run("lakemark", *command, cwd=tmp_path)
        assert (ended.returncode, ended.stdout) == (0, shown), ended.stderr


def test_plain_package_reports_errors_in_one_line(plain: Environment, tmp_path: Path) -> None:
    missing = plain.run("lakemark", "query", "nothing", cwd=tmp_path)
    assert missing.returncode == 1
    assert missing.stderr.startswith("lakemark: no Hudi table at ")
    assert len(missing.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["run", "orders.yaml"], ["validate", "orders.yaml"], ["demo"]])
def test_plain_package_says_how_to_install_the_streamer(
    plain: Environment, command: list[str], tmp_path: Path
) -> None:
    ended = plain.run("lakemark", *command, cwd=tmp_path)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"lakemark: lakemark {command[0]} needs the streamer (")
    assert line.endswith("install it: pip install '/path/to/lakemark[streamer]'")


def test_sdist_with_the_streamer_runs_the_demo_and_its_query(
    packages: Packages, tmp_path: Path
) -> None:
    """The demo of a new installation runs with the newest Spark, and downloads its connector."""
    requirement = f"lakemark[demo] @ {packages.sdist.as_uri()}"
    environment = install(requirement, tmp_path / "env")
    demo = environment.run("lakemark", "demo", "--records", 500, cwd=tmp_path, timeout_s=600)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "stopped (caught up): 1 batch," in demo.stdout

    (query,) = [line.strip() for line in demo.stdout.splitlines() if "--where" in line]
    command, *arguments = shlex.split(query)
    # The environment is not active, so the demo prints the path of its own command.
    assert command == str(environment.folder / "bin" / "lakemark")
    found = environment.run("lakemark", *arguments, "--json", cwd=tmp_path)
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert rows, found.stderr
    assert all(row["status"] == "paid" and float(row["amount"]) > 100 for row in rows)
