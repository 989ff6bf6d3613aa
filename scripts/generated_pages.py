"""Writes the pages of the documentation that are printed from code.

``python -m scripts.generated_pages``, in the environment of the tests, from the project's folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lakemark.config.property_page import render_page
from streamer.config.render import json_schema, render_reference
from streamer.migration.page import render_page as render_migration_page
from tests.golden.support import support

DOCS = Path(__file__).parents[1] / "docs"


def generated_pages() -> Mapping[str, str]:
    """The text of each page, by its name in ``docs/``."""
    return {
        "pipeline.md": render_reference(),
        "pipeline.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        "foreign_tables.md": render_page(),
        "hoodiestreamer_settings.md": render_migration_page(),
        "support.md": support(),
    }


if __name__ == "__main__":
    for name, text in generated_pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
