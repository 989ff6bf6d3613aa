"""The files in ``docker/`` agree with the project that they pack."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from streamer.cli import parser
from streamer.config.load import load

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/streamer/Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_image_runs_a_command_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    words = re.search(r"^CMD \[(.*?)\]$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert words is not None
    parsed = parser().parse_args(re.findall(r'"([^"]+)"', words[1]))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    config = load(str(ROOT / "docker/pipeline.yaml"), parsed.overrides)
    assert f"EXPOSE {config.metrics.port}" in DOCKERFILE
    assert f"127.0.0.1:{config.metrics.port}/health" in DOCKERFILE
    assert config.kafka.topic in COMPOSE["services"]["topic"]["command"]


def test_every_package_of_the_project_is_in_the_image() -> None:
    packages = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = set(re.findall(r"^COPY (\w+) /build/\1$", DOCKERFILE, re.MULTILINE))
    sent = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    assert copied == packages
    assert packages <= sent


def test_the_lock_of_the_image_is_the_run_time_part_of_the_whole_lock() -> None:
    image, whole = (
        set(
            re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE)
        )
        for name in ("image.lock", "spark-4.0.lock")
    )
    assert image < whole
    needed = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["streamer"],
    ]
    wanted = {re.split(r"[<>=]", one)[0] for one in needed}
    assert wanted <= {one.partition("==")[0] for one in image}


def test_the_composition_starts_the_streamer_last_and_keeps_no_secret_in_its_files() -> None:
    services = COMPOSE["services"]
    assert services["streamer"]["image"] == f"lakemark:{PROJECT['project']['version']}"
    assert set(services["streamer"]["depends_on"]) == {"topic", "bucket"}
    assert {name for name, service in services.items() if "healthcheck" in service} == {
        "kafka",
        "store",
    }
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            if "SECRET" in name or "PASSWORD" in name:
                assert value.startswith("${STORE_PASSWORD")
