"""What runs on a channel: one class for each kind of operation."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from aiacc.buffers import Buffer, DType, Op
from aiacc.torch import tensors
from aiacc.torch._channel import Channel, Operation

# Horovod's numbers of reductions.
Average, Sum, Adasum, Min, Max, Product = range(6)
OPS = {Average: Op.AVG, Sum: Op.SUM, Min: Op.MIN, Max: Op.MAX, Product: Op.PROD}
OP_NAMES = {Average: "Average", Sum: "Sum", Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}


def checked_op(op: Any) -> int:
    if op == Adasum:
        raise NotImplementedError("op=Adasum is not part of this version of aiacc: use Average or Sum")
    if op not in OPS:
        raise ValueError(f"op is {op!r}; it is one of Average, Sum, Min, Max and Product")
    return int(op)


def buffer_of(tensor: torch.Tensor) -> Buffer:
    return Buffer(tensor.data_ptr(), tensor.numel(), tensors.element_type(tensor), tensor)


def rows(tensor: torch.Tensor, count: int) -> int:
    """Elements in `count` rows of it."""
    elements = count
    for size in tensor.shape[1:]:
        elements *= size
    return elements


class Allreduce(Operation):
    """Of one tensor or a group of them; types may differ within a group. `outputs` may be `inputs`."""
    kind = "allreduce"

    def __init__(self, name: Optional[str], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], op: int, prescale: float,
                 postscale: float) -> None:
        super().__init__(name)
        self.inputs, self.outputs, self.op, self.scales = inputs, outputs, op, (float(prescale), float(postscale))

    def description(self) -> dict:
        return {**super().description(), "type and shape": [tensors.describe(one) for one in self.inputs], "op": OP_NAMES[self.op],
                "prescale and postscale factors": list(self.scales)}

    def refusal(self, joined: List[int]) -> Optional[str]:
        return None if self.op in (Sum, Average) else super().refusal(joined)

    def run(self, channel: Channel, numbers: List[int]) -> None:
        by_type: Dict[DType, List[Tuple[torch.Tensor, torch.Tensor, torch.Tensor]]] = {}
        for given, result in zip(self.inputs, self.outputs):
            source = tensors.packed(given)
            # The result goes where it is wanted, unless that has gaps.
            target = result if result.is_contiguous() else source if source is not given else tensors.like(result)
            by_type.setdefault(tensors.element_type(given), []).append((source, target, result))
        scales = {"prescale": self.scales[0], "postscale": self.scales[1], "name": self.name}
        for batch in by_type.values():
            sends, recvs = [buffer_of(one[0]) for one in batch], [buffer_of(one[1].detach()) for one in batch]
            if len(batch) == 1:
                channel.group.allreduce(sends[0], recvs[0], OPS[self.op], **scales)  # type: ignore[arg-type]
            else:
                channel.group.allreduce_grouped(sends, recvs, OPS[self.op], **scales)  # type: ignore[arg-type]
            with torch.no_grad():
                for _, target, result in batch:
                    if target is not result:
                        result.copy_(target)


class Allgather(Operation):
    """Rows of all ranks, one after another."""
    kind = "allgather"

    def __init__(self, name: Optional[str], inputs: Sequence[torch.Tensor]) -> None:
        super().__init__(name)
        self.inputs = [tensors.packed(one) for one in inputs]
        self.own_number = inputs[0].shape[0] if len(inputs) == 1 and inputs[0].dim() else 0

    def description(self) -> dict:
        return {**super().description(), "type and shape without rows": [[str(one.dtype), "scalar" if one.dim() == 0 else "rows", *one.shape[1:]]
                                                                          for one in self.inputs]}

    def refusal(self, joined: List[int]) -> Optional[str]:
        if any(one.dim() == 0 for one in self.inputs):
            return f"{self}: a tensor of no dimension has no rows to gather; reshape it to [1]"
        return super().refusal(joined)

    def run(self, channel: Channel, numbers: List[int]) -> None:
        n = len(self.inputs)
        sizes = [[number] for number in numbers]  # of each rank, the rows of each tensor
        if n != 1:
            mine, all_of = torch.tensor([one.shape[0] for one in self.inputs], dtype=torch.int64), torch.empty(channel.size, n, dtype=torch.int64)
            channel.group.allgather(buffer_of(mine), buffer_of(all_of))
            sizes = all_of.tolist()
        self.output = []
        self.sizes = []
        for i, given in enumerate(self.inputs):
            of_ranks = [one[i] for one in sizes]
            result = torch.empty((sum(of_ranks), *given.shape[1:]), dtype=given.dtype)
            channel.group.allgather(buffer_of(given), buffer_of(result), counts=[rows(given, one) for one in of_ranks])
            self.output.append(result)
            self.sizes.append(of_ranks)


class Broadcast(Operation):
    kind = "broadcast"

    def __init__(self, name: Optional[str], given: torch.Tensor, result: torch.Tensor, root: int, root_in_set: int) -> None:
        super().__init__(name)
        self.given, self.result, self.root, self.root_in_set = given, result, root, root_in_set

    def description(self) -> dict:
        return {**super().description(), "type and shape": tensors.describe(self.given), "root rank": self.root}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        target = self.result if self.result.is_contiguous() else tensors.like(self.result)
        with torch.no_grad():
            if channel.rank == self.root_in_set and target is not self.given:
                target.copy_(self.given)
            channel.group.broadcast(buffer_of(target.detach()), self.root_in_set, name=self.name)
            if target is not self.result:
                self.result.copy_(target)
        self.output = self.result


class Alltoall(Operation):
    """splits[r] rows go to rank r."""
    kind = "alltoall"

    def __init__(self, name: Optional[str], given: torch.Tensor, splits: List[int]) -> None:
        super().__init__(name)
        self.given, self.splits = tensors.packed(given), splits

    def description(self) -> dict:
        return {**super().description(), "type and shape without rows": [str(self.given.dtype), *self.given.shape[1:]]}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        mine = torch.tensor(self.splits, dtype=torch.int64)
        theirs = torch.empty_like(mine)
        channel.group.alltoall(buffer_of(mine), buffer_of(theirs))
        received = theirs.tolist()
        result = torch.empty((sum(received), *self.given.shape[1:]), dtype=self.given.dtype)
        channel.group.alltoall(buffer_of(self.given), buffer_of(result), send_counts=[rows(self.given, one) for one in self.splits],
                               recv_counts=[rows(self.given, one) for one in received], name=self.name)
        self.output = (result, theirs.to(torch.int32))


class Reducescatter(Operation):
    """Rows of the reduction, divided among the ranks; the lower ones have one more where they do not divide."""
    kind = "reducescatter"

    def __init__(self, name: Optional[str], inputs: Sequence[torch.Tensor], op: int, prescale: float, postscale: float) -> None:
        super().__init__(name)
        self.inputs, self.op, self.scales = [tensors.packed(one) for one in inputs], op, (float(prescale), float(postscale))

    def description(self) -> dict:
        return {**super().description(), "type and shape": [tensors.describe(one) for one in self.inputs], "op": OP_NAMES[self.op],
                "prescale and postscale factors": list(self.scales)}

    def refusal(self, joined: List[int]) -> Optional[str]:
        if self.op not in (Sum, Average):
            return f"{self}: op is {OP_NAMES[self.op]}; it is Average or Sum"
        return super().refusal(joined)

    def run(self, channel: Channel, numbers: List[int]) -> None:
        self.output = []
        for given in self.inputs:
            each, rest = divmod(given.shape[0], channel.size)
            shares = [each + (rank < rest) for rank in range(channel.size)]
            result = torch.empty((shares[channel.rank], *given.shape[1:]), dtype=given.dtype)
            channel.group.reduce_scatter(buffer_of(given), buffer_of(result), OPS[self.op], counts=[rows(given, share) for share in shares],
                                         prescale=self.scales[0], postscale=self.scales[1], name=self.name)
            self.output.append(result)


class Barrier(Operation):
    """Its agreement is the barrier."""
    kind = "barrier"

    def run(self, channel: Channel, numbers: List[int]) -> None:
        pass


class Agreement(Operation):
    """That all ranks say the same: of process sets, parameters and the like."""
    kind = "agreement"

    def __init__(self, name: str, said: Any) -> None:
        super().__init__(name)
        self.said = said

    def description(self) -> dict:
        return {**super().description(), "value": self.said}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        pass


class BroadcastBytes(Operation):
    """Bytes of the root, of a length that only it knows."""
    kind = "broadcast of an object"

    def __init__(self, name: Optional[str], data: bytes, root: int, root_in_set: int) -> None:
        super().__init__(name)
        self.data, self.root, self.root_in_set, self.own_number = data, root, root_in_set, len(data)

    def description(self) -> dict:
        return {**super().description(), "root rank": self.root}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        moved = bytearray(self.data) if channel.rank == self.root_in_set else bytearray(numbers[self.root_in_set])
        channel.group.broadcast(moved, self.root_in_set)
        self.output = bytes(moved)


class AllgatherBytes(Operation):
    """The bytes of each rank; lengths may differ."""
    kind = "allgather of an object"

    def __init__(self, name: Optional[str], data: bytes) -> None:
        super().__init__(name)
        self.data, self.own_number = data, len(data)

    def run(self, channel: Channel, numbers: List[int]) -> None:
        gathered = bytearray(sum(numbers))
        channel.group.allgather(self.data, gathered, counts=numbers)
        self.output, begin = [], 0
        for count in numbers:
            self.output.append(bytes(gathered[begin:begin + count]))
            begin += count


def stand_in(description: dict) -> Optional[Operation]:
    """What a rank that has joined runs in an operation of the others: with zeros. None: nothing, as others raise."""
    if description["operation"] == Barrier.kind:
        return None
    if description["operation"] != Allreduce.kind:
        return None
    zeros = [tensors.described(one) for one in description["type and shape"]]
    op = next(number for number, name in OP_NAMES.items() if name == description["op"])
    return Allreduce(description["name"], zeros, zeros, op, *description["prescale and postscale factors"])
