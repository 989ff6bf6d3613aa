"""Steps of other packages: those that cannot be created, and their secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lakemark.errors import InvalidConfig
from streamer.cli import MISUSED, main
from tests.installed_package import install_package
from transforms.steps.plugin import load_transform

PROGRAM = """\
class Mask:
    def __init__(self, token):
        raise ValueError(f"no server knows {token}")


class Nothing:
    def output_schema(self, schema):
        return schema
"""
POINTS = """\
[lakemark.transforms]
mask = shop_steps:Mask
nothing = shop_steps:Nothing
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path / "site", "shop_steps", PROGRAM, POINTS, monkeypatch)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", r"shop_steps:Nothing\) has no apply; implement Transform of transforms\.steps"),
        ("unknown", r"step 'unknown' is not declared .*lakemark.transforms; use one of mask, noth"),
    ],
)
def test_unusable_step_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load_transform(name, {})


@pytest.mark.parametrize("command", ["validate", "run"])
def test_error_of_a_step_that_contains_a_secret_is_not_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.setenv("MASK_TOKEN", "s3cr3t-t0ken")
    secret = {"env": "MASK_TOKEN"}
    tree = {
        "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
        "decode": {"schema": {"id": "string"}},
        "transform": [{"step": "plugin", "name": "mask", "settings": {"token": secret}}],
        "table": {"path": str(tmp_path / "orders"), "record_key": "id"},
    }
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(tree))
    assert main([command, str(file)]) == MISUSED
    output = capsys.readouterr()
    assert "s3cr3t-t0ken" not in output.out + output.err
    assert "transform.0.plugin: step mask (shop_steps:Mask) cannot be created" in output.err
