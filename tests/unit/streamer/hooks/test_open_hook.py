"""Hooks of other packages, and hooks whose libraries are missing."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from lakemark.errors import InvalidConfig
from streamer.hooks.open_hook import HookKind, check_hook, check_installed, notices_of, open_hook
from streamer.hooks.settings import HookSettings
from tests.installed_package import install_package
from tests.unit.streamer.hooks.notice_samples import BEGAN, commit

PROGRAM = """\
class Diary:
    def __init__(self, path):
        self.path = path

    def send(self, notice):
        with open(self.path, "a") as file:
            print(type(notice).__name__, file=file)
        return True

    def check(self):
        return "the diary is open"

    def close(self):
        pass


def nothing():
    return object()


def secret(password):
    raise ValueError(f"no server knows {password}")
"""
POINTS = """\
[lakemark.hooks]
diary = shop_hooks:Diary
nothing = shop_hooks:nothing
secret = shop_hooks:secret
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path / "site", "shop_hooks", PROGRAM, POINTS, monkeypatch)


def test_hook_of_another_package_gets_its_options_and_all_notices(tmp_path: Path) -> None:
    settings = HookSettings(options={"path": str(tmp_path / "diary")})
    check_hook("diary", settings)
    check_installed("diary")
    with closing(open_hook("diary", settings)) as hook:
        for notice in (BEGAN, commit()):
            assert isinstance(notice, notices_of("diary"))
            assert hook.send(notice)
    assert (tmp_path / "diary").read_text().split() == ["RunBegan", "CommitCompleted"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("diary", r"shop_hooks:Diary\) cannot be opened with the options none: TypeError;"),
        ("secret", r"\) cannot be opened with the options password: ValueError; correct them$"),
        ("nothing", r"shop_hooks:nothing\) has no send; implement Hook of"),
        ("smoke", "'smoke' is neither .* use one of http, kafka, .*, diary, nothing, secret"),
    ],
)
def test_unusable_hook_is_refused(kind: str, message: str) -> None:
    options = {"password": "p4ss"} if kind == "secret" else {}
    with pytest.raises(InvalidConfig, match=message):
        open_hook(kind, HookSettings(options=options))


def test_headers_of_a_hook_that_does_not_read_them_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="hook diary has no headers; remove them"):
        check_hook("diary", HookSettings(headers={"Authorization": "x"}))


@pytest.mark.parametrize(
    ("kind", "library"),
    [
        (HookKind.OPENLINEAGE, "openlineage.client"),
        (HookKind.OPENTELEMETRY, "opentelemetry.sdk"),
    ],
)
def test_missing_library_is_reported(
    kind: HookKind, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = HookSettings(options={"url": "http://127.0.0.1/"})
    check_installed(kind)
    monkeypatch.setitem(sys.modules, library, None)
    check_hook(kind, settings)  # the settings can be checked on a machine without the library
    with pytest.raises(InvalidConfig, match=rf"pip install '.*lakemark\[{kind.value}\]'"):
        open_hook(kind, settings)
