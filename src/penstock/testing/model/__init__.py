"""The executable model: one group over one stream, event by event, without indexes, ranges or SQL.

The stores are checked against it command by command. It is slow and simple on purpose: where a store keeps a range,
the model keeps every event.
"""

from penstock.testing.model.operate import GroupModel
from penstock.testing.model.state import ModelDelivery, ModelEvent, ModelLease

__all__ = ["GroupModel", "ModelDelivery", "ModelEvent", "ModelLease"]
