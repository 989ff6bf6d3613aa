"""A short secret is replaced wherever it is a word, and leaves other words as they are."""

from __future__ import annotations

import re
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from streamer.config.masking import redact_values

ALPHABET = st.characters(categories=["L", "N"], max_codepoint=0x2FF)
SHORT = st.text(ALPHABET, min_size=1, max_size=7)
LONG = st.text(ALPHABET, min_size=8, max_size=20)
AROUND = st.sampled_from([*" \t\n\"'=;:,/@_.$()[]{}", "\r\n"])


@given(SHORT, AROUND, AROUND)
def test_short_secrets_are_replaced_as_words(secret: str, before: str, after: str) -> None:
    redacted = redact_values([secret])
    text = f"{before}{secret}{after}"
    assert redacted(text) == f"{before}***{after}"
    assert redacted(secret) == "***"


@given(SHORT, SHORT, SHORT)
def test_short_secrets_do_not_change_other_words(secret: str, before: str, after: str) -> None:
    for word in (before + secret, secret + after, before + secret + after):
        if word != secret:
            assert redact_values([secret])(word) == word


@given(SHORT)
def test_short_secrets_are_replaced_after_an_escape(secret: str) -> None:
    escapes = (r"\n", r"\x00", r"\u0020", r"\U0001f600")
    for text in (quote(f" {secret}"), *(f"{escape}{secret}" for escape in escapes)):
        if quote(secret) == secret:
            assert redact_values([secret])(text) == text.removesuffix(secret) + "***"


@given(LONG, SHORT, SHORT)
def test_long_secrets_are_replaced_anywhere(secret: str, before: str, after: str) -> None:
    assert secret not in redact_values([secret])(before + secret + after)


def test_names_of_properties_stay_readable() -> None:
    text = "hoodie.write.lock.zookeeper.port: no such property; password p, or p=p"
    expected = re.sub(r"\bp\b", "***", text)
    assert redact_values(["p"])(text) == expected
