"""The operations on tensors of TensorFlow."""
from __future__ import annotations

from typing import Any, Dict, Optional

from aiacc._horovod import channel, operations
from aiacc._horovod.channel import Operation
from aiacc._horovod.operations import OP_NAMES
from aiacc.tensorflow import tensors

Allreduce, Allgather, Broadcast, Alltoall, Reducescatter = operations.of_framework(
    tensors, operations.Allreduce, operations.Allgather, operations.Broadcast, operations.Alltoall, operations.Reducescatter)


class Join(channel.Join):
    """Takes part in allreduces with zeros."""

    def stand_in(self, description: Dict[str, Any]) -> Optional[Operation]:
        if description["operation"] != Allreduce.kind:
            return None
        zeros = [tensors.described(one) for one in description["type and shape"]]
        op = next(number for number, name in OP_NAMES.items() if name == description["op"])
        made: Operation = Allreduce(description["name"], zeros, zeros, op, *description["prescale and postscale factors"])
        return made
