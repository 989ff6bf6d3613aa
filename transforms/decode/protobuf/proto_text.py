"""Reads the declarations of ``.proto`` files, as schema registries store them.

Options, services, extensions and reserved names have no effect on columns, so they are skipped.
Groups and editions are not supported. Source: the language specifications of proto2 and proto3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from transforms.decode.protobuf.declarations import (
    EnumDeclaration,
    FieldDeclaration,
    FileDeclaration,
    InvalidProto,
    Label,
    MessageDeclaration,
    Syntax,
)

_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|/\*.*?\*/)*   # blanks and comments
    (   [A-Za-z_]\w*                 # a word
    |   \.?\d(?:[\w.]|(?<=[eE])[+-])*  # a number
    |   "(?:[^"\\\n]|\\.)*"          # texts
    |   '(?:[^'\\\n]|\\.)*'
    |   [^\s\w]                      # a sign
    |   \Z
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INTEGER = re.compile(r"0[xX][0-9A-Fa-f]+|0[0-7]*|[1-9]\d*", re.ASCII)
_OPENING = {"{": "}", "[": "]", "(": ")"}

#: The largest depth of messages inside messages.
_MAX_DEPTH = 32


def parse_proto(text: str) -> FileDeclaration:
    """Return the declarations of a file.

    Args:
        text: the text of the file.

    Raises:
        InvalidProto: the text is not that of a file, or has something that is not supported.
    """
    return _Parser(text).file()


@dataclass(slots=True)
class _Block:
    """What was found so far in a message or a file."""

    fields: list[FieldDeclaration] = field(default_factory=list)
    messages: list[MessageDeclaration] = field(default_factory=list)
    enums: list[EnumDeclaration] = field(default_factory=list)


class _Parser:
    """Reads a file from its first token to its last."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._syntax: Syntax = "proto2"
        self._package = ""
        self._token = ""
        self._advance()

    def file(self) -> FileDeclaration:
        found = _Block()
        while self._token:
            self._statement_of_file(found)
        return FileDeclaration(
            self._package,
            self._syntax,
            tuple(found.messages),
            tuple(found.enums),
        )

    def _statement_of_file(self, found: _Block) -> None:
        word = self._next()
        if word == "syntax":
            self._expect("=")
            self._set_syntax(self._string())
            self._expect(";")
        elif word == "package":
            self._package = self._name()
            self._expect(";")
        elif word == "import":
            if self._token in ("public", "weak", "option"):
                self._next()
            self._string()  # the files of a schema are known from its references
            self._expect(";")
        elif word in ("service", "extend"):
            self._name()
            self._skip_block()
        elif word == "edition":
            self._refuse("editions are not supported; use proto3")
        elif not self._is_type(word, found, 0) and not self._is_skipped(word):
            self._refuse(f"unexpected {word!r}")

    def _set_syntax(self, name: str) -> None:
        if name == "proto3":
            self._syntax = "proto3"
        elif name != "proto2":
            self._refuse(f"the syntax {name!r} is not supported; use proto2 or proto3")

    def _is_type(self, word: str, found: _Block, depth: int) -> bool:
        """Read a message or an enum, if ``word`` begins one."""
        if word == "message":
            found.messages.append(self._message(depth + 1))
        elif word == "enum":
            found.enums.append(self._enum())
        else:
            return False
        return True

    def _is_skipped(self, word: str) -> bool:
        """Skip an empty statement or options, if ``word`` begins them."""
        if word == "option":
            self._skip_statement()
        return word in (";", "option")

    def _message(self, depth: int) -> MessageDeclaration:
        if depth > _MAX_DEPTH:
            self._refuse(f"messages are nested more than {_MAX_DEPTH} levels deep")
        name, found = self._word(), _Block()
        self._expect("{")
        while self._token != "}":
            self._statement_of_message(found, depth)
        self._next()
        return MessageDeclaration(
            name, tuple(found.fields), tuple(found.messages), tuple(found.enums)
        )

    def _statement_of_message(self, found: _Block, depth: int) -> None:
        word = self._next()
        if self._is_type(word, found, depth) or self._is_skipped(word):
            return
        if word in ("reserved", "extensions"):
            self._skip_statement()
        elif word == "extend":
            self._name()
            self._skip_block()
        elif word == "oneof":
            self._oneof(found)
        elif word in ("optional", "required", "repeated"):
            found.fields.append(self._field(self._type(self._next()), _LABELS[word], None))
        elif word == "map" and self._token == "<":
            found.fields.append(self._map())
        else:
            found.fields.append(self._field(self._type(word), "", None))

    def _oneof(self, found: _Block) -> None:
        name = self._word()
        self._expect("{")
        while self._token != "}":
            word = self._next()
            if not self._is_skipped(word):
                found.fields.append(self._field(self._type(word), "", name))
        self._next()

    def _map(self) -> FieldDeclaration:
        self._expect("<")
        key = self._word()
        self._expect(",")
        value = self._type(self._next())
        self._expect(">")
        return self._field(value, "", None, key)

    def _field(
        self, type_name: str, label: Label, oneof: str | None, key_type: str | None = None
    ) -> FieldDeclaration:
        name = self._word()
        self._expect("=")
        number = self._integer()
        if self._token == "{" or (self._token == "[" and type_name == "group"):
            self._refuse(f"field {name!r} is a group, which is not supported")
        if self._token == "[":
            self._skip_block()
        self._expect(";")
        return FieldDeclaration(name, number, type_name, label, oneof, key_type)

    def _enum(self) -> EnumDeclaration:
        name, values = self._word(), []
        self._expect("{")
        while self._token != "}":
            word = self._next()
            if word == "reserved":
                self._skip_statement()
            elif not self._is_skipped(word):
                values.append((self._as_word(word), self._enum_number()))
        self._next()
        return EnumDeclaration(name, tuple(values))

    def _enum_number(self) -> int:
        self._expect("=")
        sign = 1
        if self._token == "-":
            self._next()
            sign = -1
        number = sign * self._integer()
        if self._token == "[":
            self._skip_block()
        self._expect(";")
        return number

    def _type(self, word: str) -> str:
        """Read the name of a type, of which ``word`` is the first token."""
        if word == ".":
            return f".{self._name()}"
        return self._rest_of_name(self._as_word(word))

    def _name(self) -> str:
        """Read a name of words with dots between them, and maybe a dot in front."""
        dot = ""
        if self._token == ".":
            dot = self._next()
        return dot + self._rest_of_name(self._word())

    def _rest_of_name(self, first: str) -> str:
        words = [first]
        while self._token == ".":
            self._next()
            words.append(self._word())
        return ".".join(words)

    def _word(self) -> str:
        return self._as_word(self._next())

    def _as_word(self, token: str) -> str:
        if not _WORD.fullmatch(token):
            self._refuse(f"expected a name, found {token!r}")
        return token

    def _integer(self) -> int:
        token = self._next()
        if not _INTEGER.fullmatch(token):
            self._refuse(f"expected an integer, found {token!r}")
        if token[:2] in ("0x", "0X"):
            return int(token, 16)
        return int(token, 8 if token.startswith("0") else 10)

    def _string(self) -> str:
        token = self._next()
        if token[:1] not in ('"', "'") or len(token) == 1:
            self._refuse(f"expected a text in quotation marks, found {token!r}")
        return token[1:-1]

    def _skip_statement(self) -> None:
        while self._token != ";":
            if self._token in _OPENING:
                self._skip_block()
            else:
                self._next()
        self._next()

    def _skip_block(self) -> None:
        """Skip a pair of brackets, and everything between them."""
        closing = [_OPENING.get(self._token)]
        if closing == [None]:
            self._refuse(f"expected a block, found {self._token!r}")
        self._next()
        while closing:
            token = self._next()
            if token == closing[-1]:
                closing.pop()
            elif token in _OPENING:
                closing.append(_OPENING[token])

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            self._refuse(f"expected {token!r}, found {found!r}")

    def _next(self) -> str:
        """Return the next token.

        Raises:
            InvalidProto: the file ends here.
        """
        token = self._token
        if not token:
            self._refuse("the text ends early")
        self._advance()
        return token

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        assert match is not None, self._at  # any character is a token
        self._token, self._at = match.group(1), match.end()
        if self._token == "/":
            self._refuse("a comment is not closed")

    def _refuse(self, fault: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        message = f"line {line}: {fault}"
        raise InvalidProto(message)


_LABELS: dict[str, Label] = {
    "optional": "optional",
    "required": "required",
    "repeated": "repeated",
}
