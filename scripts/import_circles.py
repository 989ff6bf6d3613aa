"""Fails if modules import each other in a circle.

``python scripts/import_circles.py PACKAGE...``, from the project's folder. An import counts
wherever it is written: at the top of a module, inside a function, or for type checkers only.
Import-linter checks the layers of packages; this checks the modules inside a package.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


def find_modules(packages: list[str]) -> dict[str, Path]:
    """Return the files of all modules by their import names."""
    files = (path for package in packages for path in Path(package).rglob("*.py"))
    return {_import_name(path): path for path in files}


def find_imports(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield those of ``modules`` that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in members]
        else:
            continue
        yield from (name for name in names if name in modules)


def find_circle(packages: list[str]) -> list[str]:
    """Return the modules of a circle, each imported by the next one; empty if there is none."""
    modules = find_modules(packages)
    imports = {name: set(find_imports(path, modules)) - {name} for name, path in modules.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def _import_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    circle = find_circle(sys.argv[1:])
    if circle:
        sys.exit(f"modules import each other in a circle: {' <- '.join(circle)}; remove an import")
