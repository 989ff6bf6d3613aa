"""Parses YAML strictly: repeated names are refused, and errors do not quote the text.

Invalid YAML may contain secrets anywhere, so an error quotes at most one character or a repeated
name.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from streamer.config.masking import name_only

_NO_VALUE = "looks like a date or a number but is not valid; quote it"
_TOO_DEEP = "it is nested too deep"
_MERGE = "tag:yaml.org,2002:merge"
_TEXT_IS_REPEATED = re.compile(r"\b(tag|alias) .*", re.DOTALL)
_QUOTE_IT = r"\1; quote a text that begins with !, & or *"
_IS_UNQUOTED = re.compile(
    r"mapping values are not allowed here|expected ',' or '.', but got '<(?!stream end).*",
    re.DOTALL,
)
_QUOTE_ALL = r"\g<0>; quote a text that contains a comma, a colon, a bracket or a brace"


class InvalidYaml(ValueError):
    """The text is not valid YAML. The message is `` in line 2, column 1: <problem>``."""

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        where = "" if line is None else f" in line {line}, column {column}"
        super().__init__(f"{where}: {problem}")


def parse_yaml(text: str) -> object:
    """Parse a YAML text.

    Raises:
        InvalidYaml: the text is not valid.
    """
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        raise _invalid_yaml(error) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed"
        raise InvalidYaml(problem, line, column) from None
    except RecursionError:
        raise InvalidYaml(_TOO_DEEP) from None


class _StrictLoader(yaml.SafeLoader):
    """Refuses invalid values, and repeated names, because PyYAML would use the last of them."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError):
            # PyYAML takes a text such as 2024-13-45 for a date, and raises Python's own error.
            raise _error(_NO_VALUE, node) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                problem = "<< is not supported; repeat the settings"
                raise _error(problem, key_node)
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                problem = "a list or a mapping cannot be a name"
                raise _error(problem, key_node)
            if key in seen:
                problem = f"the name {name_only(str(key))} is given twice"
                raise _error(problem, key_node)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _error(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _invalid_yaml(error: yaml.MarkedYAMLError) -> InvalidYaml:
    problem = _TEXT_IS_REPEATED.sub(_QUOTE_IT, error.problem or "")
    problem = _IS_UNQUOTED.sub(_QUOTE_ALL, problem)
    if error.problem_mark is None:
        return InvalidYaml(problem)
    return InvalidYaml(problem, error.problem_mark.line + 1, error.problem_mark.column + 1)
