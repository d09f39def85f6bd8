"""Tools to test code that uses Penstock: run a handler inline, a harness for apps, a virtual clock, crash points,
history checkers, and the contract of publishers."""

from penstock.testing.clock import VirtualClock
from penstock.testing.contract.check import BrokenContract, CheckedPublisher, check_publisher
from penstock.testing.contract.received import Received
from penstock.testing.crash import CrashPoint, StatementCounter
from penstock.testing.draining import Drained
from penstock.testing.emitted import Emitted
from penstock.testing.handlers import Handled, run_handler
from penstock.testing.harness import Harness
from penstock.testing.history import History, Violation

__all__ = [
    "BrokenContract",
    "CheckedPublisher",
    "CrashPoint",
    "Drained",
    "Emitted",
    "Handled",
    "Harness",
    "History",
    "Received",
    "StatementCounter",
    "Violation",
    "VirtualClock",
    "check_publisher",
    "run_handler",
]
