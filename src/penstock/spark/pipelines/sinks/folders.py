"""Folders for files: on this machine, or in object storage that pyarrow knows."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from penstock.errors import InvalidPipeline
from penstock.log.archives.places import filesystem, is_on_disk, to_disk
from penstock.log.pipelines import Rename

HIDDEN: Final = "_penstock"  # Parquet readers skip names that begin with an underscore


def check_writable(folder: str) -> None:
    """Make the hidden part of a folder; `InvalidPipeline` if that is impossible."""
    try:
        files, root = filesystem(folder)
        files.create_dir(f"{root}/{HIDDEN}", recursive=True)
    except (OSError, ValueError) as error:
        raise InvalidPipeline(f"{folder} cannot be written: {error}.") from error


class ArrowFolder:
    """A folder that pyarrow reads and writes. Everything raises `OSError`."""

    def __init__(self, folder: str) -> None:
        self._files, self._root = filesystem(folder)

    def give_name(self, one: Rename) -> None:
        """Rename a file; on object storage that is a copy and a delete. Do nothing if it was done before."""
        from pyarrow import fs

        files, root = self._files, self._root
        source, target = files.get_file_info([f"{root}/{one.source}", f"{root}/{one.target}"])
        if source.type == fs.FileType.NotFound:
            if target.type == fs.FileType.NotFound:
                raise FileNotFoundError(f"neither {one.source} nor {one.target} exists")
            return
        try:
            files.move(source.path, target.path)
        except FileNotFoundError:  # another driver was quicker
            if files.get_file_info(target.path).type == fs.FileType.NotFound:
                raise
        if is_on_disk(files):
            to_disk(root)

    def hidden(self) -> list[str]:
        """Return the names of what is not yet, or never, to be seen."""
        from pyarrow import fs

        selected = fs.FileSelector(f"{self._root}/{HIDDEN}", allow_not_found=True)
        return [one.base_name for one in self._files.get_file_info(selected) if one.type == fs.FileType.File]

    def drop(self, name: str) -> None:
        """Delete a hidden file."""
        with suppress(FileNotFoundError):
            self._files.delete_file(f"{self._root}/{HIDDEN}/{name}")
