"""Pipeline files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def write(folder: Path, name: str, /, **sections: Any) -> str:
    """Write a pipeline file; return its path. The sections replace those of a plain one."""
    tree: dict[str, Any] = {
        "source": {"bootstrap_servers": "localhost:9092", "topic": name},
        "table": {"path": f"{folder}/lake/{name}", "record_key": "id"},
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**tree, **sections}))
    return str(file)
