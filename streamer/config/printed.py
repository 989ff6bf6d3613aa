"""A configuration as text: what a pipeline resolves to, and the schema for editors."""

from __future__ import annotations

from typing import Any

import yaml

from streamer.config.pipeline import PipelineConfig


def resolved_yaml(config: PipelineConfig) -> str:
    """The whole pipeline, defaults included and secrets masked, as YAML."""
    tree = config.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a pipeline file, for completion and checks while editing."""
    schema = PipelineConfig.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
