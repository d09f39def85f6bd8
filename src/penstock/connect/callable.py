"""`Callable`: publish with a function of your own."""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Sequence
from typing import Any

from penstock.connect.target_options import check_count, check_name
from penstock.core.signals import Permanent, RetryLater, Unavailable
from penstock.declare.publisher import OK, Message, Result
from penstock.declare.relay import AWAY
from penstock.errors import InvalidPublisher


class Callable:
    """Calls a function with every message, or, with `batch=100`, with lists of up to 100.

    A function of one message returns None or a `Result`; one of many returns None or a list of them. Whatever a
    function of one message raises is its outcome, as in a handler: `Permanent`, `RetryLater`, `Unavailable`.
    """

    def __init__(self, function: Function[..., Any], *, topic: str | None = None, batch: int | None = None) -> None:
        if not callable(function):
            raise InvalidPublisher(f"{function!r:.80} is not a function.")
        self._function = function
        self._single = batch is None
        self.topic = check_name(topic, "topic")
        self.batch = 1_000 if batch is None else check_count(batch, "batch")
        self.target = getattr(function, "__qualname__", type(function).__name__)

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Call the function."""
        if not self._single:
            answer: Sequence[Result] | None = self._function(messages)
            return answer
        results: list[Result] = []
        for message in messages:
            results.append(self._call(message))
            if results[-1].kind == "unavailable":  # the others would fail, too
                return [*results, *[results[-1]] * (len(messages) - len(results))]
        return results

    def _call(self, message: Message) -> Result:
        try:
            answer = self._function(message)
        except Unavailable as error:
            return Result.unavailable("unavailable", str(error), error.after_seconds)
        except AWAY as error:
            return Result.unavailable(type(error).__name__, str(error))
        except Permanent as error:
            return Result.permanent(_code(error), str(error))
        except RetryLater as error:
            return Result.retry(_code(error), str(error), error.after_seconds)
        except Exception as error:
            return Result.retry(_code(error), str(error))
        if answer is not None and not isinstance(answer, Result):
            raise InvalidPublisher(f"{self.target} returned {answer!r:.80}: return None or a Result.")
        return OK if answer is None else answer


def _code(error: BaseException) -> str:
    code = getattr(error, "code", None)
    return code if isinstance(code, str) and code else type(error).__name__
