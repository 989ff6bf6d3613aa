"""lakemark works if user modules with the names of its packages come first on the path."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lakemark
from lakemark.own_packages import PACKAGES, ROOT
from lakemark.spark.versions import VersionCheckedTask

CLASHING = ("checkpoints", "sinks", "streamer", "transforms")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A user's folder, with modules whose names are those of lakemark's packages."""
    folder = tmp_path / "users"
    for name in ("transforms", "sinks", "checkpoints"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("MINE = True\n")
    (folder / "streamer.py").write_text("MINE = True\n")
    (folder / "table.py").write_text("MINE = True\n")
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    import pyarrow as pa

    schema = pa.schema([("id", pa.string())])
    created = lakemark.create(tmp_path / "orders", schema=schema, record_key=["id"])
    created.upsert(pa.table({"id": ["a"]}))
    return tmp_path / "orders"


def python(users: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in the user's folder, which comes first on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(users), ROOT])}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=users, env=environment, capture_output=True, text=True, timeout=120
    )


def test_packages_are_those_of_the_distribution() -> None:
    project = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(PACKAGES) == set(wheel["packages"])


@pytest.mark.parametrize("program", [["-m", "lakemark"], [Path(ROOT, "lakemark/__main__.py")]])
def test_command_uses_its_own_packages_and_names_the_others(
    users: Path, table: Path, program: list[str | Path]
) -> None:
    shown = python(users, *program, "query", table, "--json")
    assert (shown.returncode, shown.stdout) == (0, '{"id": "a"}\n'), shown.stderr
    warnings = shown.stderr.splitlines()
    assert len(warnings) == len(CLASHING)
    for name, warning in zip(CLASHING, warnings, strict=True):
        assert warning.startswith(f"lakemark: warning: {users / name}"), warning
        assert f"the name of lakemark's package {name}; lakemark uses its own" in warning


def test_command_without_a_clash_warns_of_nothing(tmp_path: Path, table: Path) -> None:
    (tmp_path / "transforms").mkdir()  # a folder without __init__.py hides no package
    assert python(tmp_path, "-m", "lakemark", "query", table).stderr == ""


def test_program_as_a_file_does_not_hide_modules_of_the_user(users: Path) -> None:
    """User modules such as ``table`` win over modules in the folder of the program."""
    program = (
        "import runpy, sys, types\n"
        f"sys.path.insert(0, {str(Path(ROOT, 'lakemark'))!r})\n"
        "cli = types.ModuleType('streamer.cli')\n"
        "cli.main = lambda: __import__('table').MINE\n"
        "sys.modules['streamer.cli'] = cli\n"
        f"runpy.run_path({str(Path(ROOT, 'lakemark/__main__.py'))!r}, run_name='__main__')\n"
    )
    assert python(users, "-c", program).returncode == 1  # True, as an exit code


def test_library_leaves_names_to_the_user(users: Path, table: Path) -> None:
    program = (
        "import lakemark, sys\n"
        "assert lakemark.open(sys.argv[1]).snapshot().read_all().num_rows == 1\n"
        "import transforms, sinks, streamer, table\n"
        "assert transforms.MINE and sinks.MINE and streamer.MINE and table.MINE\n"
    )
    ended = python(users, "-c", program, table)
    assert ended.returncode == 0, ended.stderr


def test_worker_uses_the_packages_of_lakemark_if_the_driver_does(users: Path) -> None:
    sending = (
        "import pickle, sys\n"
        "from lakemark.own_packages import prefer_own_packages\n"
        "prefer_own_packages()\n"
        "from lakemark.spark.versions import VersionCheckedTask\n"
        "from sinks.hudi.spark_exchange import routes\n"
        "sys.stdout.buffer.write(pickle.dumps(VersionCheckedTask(routes)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(users), ROOT])}
    sent = subprocess.run(
        [sys.executable, "-c", sending], env=environment, capture_output=True, check=True
    )
    receiving = (
        f"import pickle\ntask = pickle.loads({sent.stdout!r})\n"
        "assert task(2) == task.function(2)\nimport sinks\nprint(sinks.__file__)\n"
    )
    received = python(users, "-c", receiving)
    assert received.stdout == f"{Path(ROOT, 'sinks', '__init__.py')}\n", received.stderr


def test_task_of_a_library_user_changes_nothing_in_the_worker(users: Path) -> None:
    receiving = (
        f"import pickle\npickle.loads({pickle.dumps(VersionCheckedTask(len))!r})\n"
        "import sinks\nassert sinks.MINE\n"
    )
    received = python(users, "-c", receiving)
    assert received.returncode == 0, received.stderr


def test_module_that_was_imported_before_is_refused_by_name(users: Path) -> None:
    program = (
        "import transforms\nfrom lakemark.own_packages import prefer_own_packages\n"
        "prefer_own_packages()\n"
    )
    refused = python(users, "-c", program)
    assert refused.stderr.splitlines()[-1] == (
        f"lakemark.errors.InvalidConfig: {users / 'transforms' / '__init__.py'} has the name of "
        "lakemark's package transforms; it was imported first. "
        "Rename your module, or remove its folder from the path"
    )
