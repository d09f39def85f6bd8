"""Places for files: folders on this machine, or in object storage that pyarrow knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.errors import ArchiveUnavailable, InvalidInput, MissingDependency

NONE: Final = "none"  # said instead of a place


def check_place(place: Any) -> str:
    """Return a place as it is stored: an absolute path, or a URL like s3://bucket/prefix without credentials."""
    if not isinstance(place, str) or not place.strip():
        raise InvalidInput("An archive is a directory, or a URL like s3://bucket/prefix.")
    found = urlsplit(place) if "://" in place else None
    if found is not None and (found.username or found.password):
        raise InvalidInput("Do not put credentials in the path: use the environment (AWS_ACCESS_KEY_ID, …).")
    if found is not None and found.scheme == "file":
        return found.path.rstrip("/") or "/"
    return place if found is not None else os.path.abspath(place)


def is_local(place: str) -> bool:
    """Whether a place is a directory of this machine."""
    return "://" not in place or place.startswith("file://")


def filesystem(folder: str) -> tuple[Any, str]:
    """Return the file system of a folder, and its path in it."""
    from pyarrow import fs

    files, root = fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    return files, root.rstrip("/")


def is_on_disk(files: Any) -> bool:
    """Whether the files of a file system can be synced to disk by this process."""
    return bool(files.type_name == "local")


def to_disk(path: str) -> None:
    """Sync to disk: what the database records as done must survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Place:
    """A place and the files below it, by relative paths. Everything raises `ArchiveUnavailable`."""

    def __init__(self, place: str) -> None:
        self.place = place
        with self._errors():
            self.files, self.root = filesystem(place)
        self.on_disk = is_on_disk(self.files)

    def path(self, name: str) -> str:
        """Return the whole path of something, as the file system knows it."""
        return f"{self.root}/{name}"

    def make(self, folder: str) -> None:
        """Make a folder and those above it."""
        with self._errors():
            self.files.create_dir(self.path(folder), recursive=True)

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder."""
        from pyarrow import fs

        with self._errors():
            return bool(self.files.get_file_info(self.path(name)).type != fs.FileType.NotFound)

    def listed(self, folder: str) -> list[str]:
        """Return the relative paths of the files directly in a folder; hidden ones, too."""
        from pyarrow import fs

        with self._errors():
            found = self.files.get_file_info(fs.FileSelector(self.path(folder), allow_not_found=True))
        return sorted(f"{folder}/{one.base_name}" for one in found if one.type == fs.FileType.File)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder."""
        from pyarrow import fs

        with self._errors():
            found = self.files.get_file_info(fs.FileSelector(self.path(folder), allow_not_found=True))
        return sorted(one.base_name for one in found if one.type == fs.FileType.Directory)

    def read(self, name: str) -> bytes:
        """Return the bytes of a small file."""
        with self._errors(), self.files.open_input_stream(self.path(name)) as source:
            return bytes(source.read())

    def write(self, name: str, text: bytes) -> None:
        """Write a small file at once: whoever reads it sees the old one or the new one."""
        with self._errors():
            if not self.on_disk:  # an object appears when it is complete
                with self.files.open_output_stream(self.path(name)) as target:
                    target.write(text)
                return
            hidden = f"{self.path(name)}.tmp"
            with open(hidden, "wb") as target:
                target.write(text)
                target.flush()
                os.fsync(target.fileno())
            os.replace(hidden, self.path(name))
            to_disk(os.path.dirname(hidden))

    def rename(self, folder: str, name: str) -> bool:
        """Give a folder on disk its name at once; False if there is one of that name."""
        with self._errors():
            try:
                os.rename(self.path(folder), self.path(name))
            except OSError:
                if os.path.isdir(self.path(name)):
                    return False
                raise
            to_disk(os.path.dirname(self.path(name)))
        return True

    def sync(self, folder: str) -> None:
        """Sync a folder and its files to disk, where that can be done."""
        if self.on_disk:
            with self._errors():
                for name in self.listed(folder):
                    to_disk(self.path(name))
                to_disk(self.path(folder))

    def drop(self, name: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError), self._errors():
            self.files.delete_file(self.path(name))

    def drop_folder(self, folder: str) -> None:
        """Delete a folder with everything in it, if it is there."""
        with suppress(FileNotFoundError), self._errors():
            self.files.delete_dir(self.path(folder))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise ArchiveUnavailable(f"{self.place} cannot be used: {error}.") from error
        except ImportError as error:
            raise MissingDependency("Archives need pyarrow: pip install 'penstock[arrow]'.") from error
