"""Packages with entry points, as pip installs them."""

from __future__ import annotations

from pathlib import Path

import pytest


def install_package(
    site: Path, name: str, program: str, points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Install a package of one module, until the test ends.

    Args:
        site: the folder of installed packages, which is created.
        name: the name of the package and of its module.
        program: the source of the module.
        points: the content of ``entry_points.txt``.
        monkeypatch: makes the package importable.
    """
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(program)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(site))
