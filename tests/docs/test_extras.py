"""Messages and pages about missing libraries name extras that exist, as README.md installs them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from lakemark.extras import install_command

ROOT = Path(__file__).parents[2]
PACKAGES = ("lakemark", "streamer", "sinks", "transforms", "checkpoints")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_readme_installs_extras_with_the_command_of_the_messages() -> None:
    assert f"\n{install_command('streamer,sql')}\n" in (ROOT / "README.md").read_text()


def test_no_text_installs_an_extra_from_a_package_index() -> None:
    code = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]
    assert len(code) > 100
    assert len(pages) > 30
    found = [str(file) for file in [*code, *pages] if "pip install 'lakemark" in file.read_text()]
    assert found == []


def test_messages_name_extras_that_exist() -> None:
    code = "".join(
        file.read_text() for package in PACKAGES for file in (ROOT / package).rglob("*.py")
    )
    named = set(re.findall(r"install_command\(['\"](\w+)['\"]\)", code))
    assert {"sql", "streamer"} <= named <= EXTRAS.keys()
