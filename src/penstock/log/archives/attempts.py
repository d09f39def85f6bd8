"""Attempts at archives: hidden folders, of which one becomes the archive; those of killed processes stay behind."""

from __future__ import annotations

import re
from typing import Final

from penstock.log.archives.places import Place
from penstock.log.archives.record import archives
from penstock.stores.base import Store

_ATTEMPT: Final = re.compile(r"_offsets-\d+-\d+-(?P<id>\d+)-[0-9a-f]{8}\Z")


def parent_of(stream: str) -> str:
    """Return the folder of a stream's archives in a place."""
    return stream.replace(":", "~")  # a colon means something in paths of Hadoop


def drop_attempts(store: Store, place: Place, stream: str) -> None:
    """Drop what other attempts at archives left that are complete now."""
    parent = parent_of(stream)
    done = {one.id: one for one in archives(store, stream) if one.place == place.place and one.done}
    for folder in place.folders(parent):
        found = _ATTEMPT.match(folder)
        one = done.get(int(found["id"])) if found is not None else None
        if one is not None and one.folder != f"{parent}/{folder}":
            place.drop_folder(f"{parent}/{folder}")
