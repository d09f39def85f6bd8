"""What you need to test code that uses Penstock: a virtual clock, crash points, history checkers."""

from penstock.testing.clock import VirtualClock
from penstock.testing.crash import CrashPoint, StatementCounter
from penstock.testing.history import History, Violation

__all__ = ["CrashPoint", "History", "StatementCounter", "Violation", "VirtualClock"]
