from __future__ import annotations

from dataclasses import replace

from lakemark.storage.storage import ObjectInfo
from tests.storages.wrapped_storage import WrappedStorage


class WholeSeconds(WrappedStorage):
    """Reports the modification time of an object in whole seconds, as S3 does."""

    def head(self, path: str) -> ObjectInfo | None:
        info = super().head(path)
        return info and _to_the_second(info)

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        folders, objects = super().list_folder(folder)
        return folders, [_to_the_second(info) for info in objects]


def _to_the_second(info: ObjectInfo) -> ObjectInfo:
    return replace(info, modified_at=info.modified_at.replace(microsecond=0))
