"""`isolation="inline"`: run handlers in the engine's process: no overhead, but no protection either."""

from __future__ import annotations

from penstock.declare.relay import Relay
from penstock.declare.subscription import Subscription
from penstock.engine.handlers.batch import runner_for
from penstock.engine.handlers.life import SharedLife
from penstock.engine.handlers.runner import Part
from penstock.engine.isolation.marks import Marks
from penstock.engine.work import Work


class Inline:
    """The executor that runs a lease in the calling thread."""

    def __init__(self, subscription: Subscription) -> None:
        around = subscription.around
        self._life = SharedLife(around) if around.on_start or around.on_stop else None
        self._runner = runner_for(subscription)
        self._relays = [one.function for one in subscription.handlers if isinstance(one.function, Relay)]
        self.marks = Marks(subscription.policy.concurrency, subscription.policy.batch_size)

    def start(self) -> bool:
        """Call `on_start`, if this is the first group of the app in this process."""
        if self._life is not None:
            self._life.start()
        return True

    def run(self, work: Work) -> None:
        """Call the handlers until the end of the lease or the stop flag."""
        self._runner.begin()
        work.add(self._runner.run(Part(work.events, 0, work.marks, work.state, {}, work.token)))

    def stop(self) -> None:
        """Close the event loop and what publishers have opened, and call `on_stop` after the last group."""
        self._runner.close()
        for relay in self._relays:
            relay.close()
        if self._life is not None:
            self._life.stop()
