"""Shared memory that says which events were in flight and which were done, readable after the process died."""

from __future__ import annotations

import mmap
import os
import tempfile
from enum import IntEnum

_HEADER = 64  # a cache line for the stop flag alone


class Mark(IntEnum):
    """The status of one event of a lease."""

    UNTOUCHED = 0
    DONE = 1
    FAILED = 2  # or suspected: it gets a row of its own
    HELD = 3  # not called: an earlier event of its key is unresolved
    BACK = 4  # the target was unavailable: nobody's fault
    RUNNING = 5  # in a batch call
    CANCELLED = 6  # not to be called: somebody wants it to end


class Marks:
    """A stop flag, a slot per event in flight (its place in the lease + 1), and two bytes per event of the lease.

    They are its mark, and whether it should end.
    """

    def __init__(self, slots: int, events: int, descriptor: int | None = None, *, shared: bool = False) -> None:
        size = _HEADER + 8 * slots + 2 * events
        self.descriptor = descriptor
        if shared and descriptor is None:
            self.descriptor = _anonymous_file(size)
        memory = memoryview(bytearray(size) if self.descriptor is None else mmap.mmap(self.descriptor, size))
        self.stop = memory[:1]
        self.slots = memory[_HEADER : _HEADER + 8 * slots].cast("q")
        self.events = memory[_HEADER + 8 * slots : _HEADER + 8 * slots + events]
        self.cancels = memory[_HEADER + 8 * slots + events :]

    def begin(self, count: int) -> None:
        """Reset for a lease of `count` events."""
        self.stop[0] = 0
        self.events[:count] = bytes(count)
        self.cancels[:count] = bytes(count)
        self.clear_slots()

    def clear_slots(self) -> None:
        """Forget what runs."""
        for slot in range(len(self.slots)):
            self.slots[slot] = 0

    def running(self) -> list[int]:
        """Return the places of the events in flight, including all events of running batch calls."""
        marks = bytes(self.events)
        if not marks.count(Mark.RUNNING):
            return [value - 1 for value in self.slots if value]
        return [place for place, mark in enumerate(marks) if mark == Mark.RUNNING]

    def begun(self) -> bool:
        """Whether an event has been started."""
        return bool(self.events[0]) or any(self.slots)

    def close(self) -> None:
        """Close the file; the memory is freed when the last view is gone."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("penstock-marks")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
