"""``scripts/import_circles.py``, which ``make check`` runs, finds import circles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(folder: Path, modules: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (folder / "shop").mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (folder / "shop" / f"{name}.py").write_text(text)
    script = [sys.executable, str(ROOT / "scripts" / "import_circles.py"), "shop"]
    return subprocess.run(script, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    "closing_import",
    [
        "from shop.cart import total",
        "import shop.cart",
        "from shop import cart",
        "def f():\n    from shop.cart import total",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop.cart import total",
    ],
)
def test_circle_of_three_modules_is_named(tmp_path: Path, closing_import: str) -> None:
    modules = {
        "cart": "from shop.item import Item\ntotal = 0",
        "item": "from shop.price import Price\nItem = 1",
        "price": closing_import + "\nPrice = 2",
    }
    result = check(tmp_path, modules)
    assert result.returncode == 1
    assert all(f"shop.{name}" in result.stderr for name in modules), result.stderr


def test_modules_without_a_circle_pass(tmp_path: Path) -> None:
    modules = {
        "__init__": "from shop.cart import total",
        "cart": "from shop.item import Item\nfrom shop.price import Price\ntotal = 0",
        "item": "import json\nfrom shop.price import Price\nItem = 1",
        "price": "Price = 2",
    }
    result = check(tmp_path, modules)
    assert (result.returncode, result.stderr) == (0, "")
