"""What runs on a channel: one class for each kind of operation."""
from __future__ import annotations

import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

from aiacc._arguments import number
from aiacc._horovod.channel import Channel, Operation
from aiacc.buffers import DType, Op

# Horovod's numbers of reductions.
Average, Sum, Adasum, Min, Max, Product = range(6)
OPS = {Average: Op.AVG, Sum: Op.SUM, Min: Op.MIN, Max: Op.MAX, Product: Op.PROD}
OP_NAMES = {Average: "Average", Sum: "Sum", Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}


def checked_op(op: Any) -> int:
    try:
        known = op in OP_NAMES
    except TypeError:  # not hashable
        known = False
    if not known:
        raise ValueError(f"op is {op!r}; it is one of Average, Sum, Adasum, Min, Max and Product")
    return int(op)


def scales_of(prescale: Any, postscale: Any) -> Tuple[float, float]:
    return number("prescale_factor", prescale), number("postscale_factor", postscale)


def _integers(values: Sequence[int]) -> array.array[int]:
    return array.array("q", values)


def rows(tensor: Any, count: int) -> int:
    """Elements in `count` rows of it."""
    elements = count
    for size in tensor.shape[1:]:
        elements *= size
    return elements


def shares(count: int, size: int) -> List[int]:
    """How many of `count` rows each rank gets: the lower ones have one more where they do not divide."""
    each, rest = divmod(count, size)
    return [each + (rank < rest) for rank in range(size)]


class OfTensors(Operation):
    """Of one framework's tensors. Their module has element_type, describe and described, is_packed, packed, like, empty and rows_like,
    copy, buffer_of and integers."""
    tensors: Any = None


class Allreduce(OfTensors):
    """Of one tensor or a group of them; types may differ within a group. `outputs` may be `inputs`."""
    kind = "allreduce"
    reduces_adasum = False  # a subclass that does has reduce_adasum()

    def __init__(self, name: Optional[str], inputs: Sequence[Any], outputs: Sequence[Any], op: int, prescale: float,
                 postscale: float) -> None:
        super().__init__(name)
        if op == Adasum and not self.reduces_adasum:
            raise NotImplementedError("op=Adasum is not part of this binding of aiacc: use Average or Sum")
        self.inputs, self.outputs, self.op, self.scales = inputs, outputs, op, scales_of(prescale, postscale)

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "type and shape": [self.tensors.describe(one) for one in self.inputs], "op": OP_NAMES[self.op],
                "prescale and postscale factors": list(self.scales)}

    def refusal(self, joined: List[int]) -> Optional[str]:
        return None if self.op in (Sum, Average) else super().refusal(joined)

    def run(self, channel: Channel, numbers: List[int]) -> None:
        by_type: Dict[DType, List[Tuple[Any, Any, Any]]] = {}
        for given, result in zip(self.inputs, self.outputs):
            source = self.tensors.packed(given)
            # The result goes where it is wanted, unless that has gaps.
            target = result if self.tensors.is_packed(result) else source if source is not given else self.tensors.like(result)
            by_type.setdefault(self.tensors.element_type(given), []).append((source, target, result))
        scales = {"prescale": self.scales[0], "postscale": self.scales[1], "name": self.name}
        for batch in by_type.values():
            if self.op == Adasum:
                self.reduce_adasum(channel, [one[0] for one in batch], [one[2] for one in batch])
                continue
            sends, recvs = [self.tensors.buffer_of(one[0]) for one in batch], [self.tensors.buffer_of(one[1]) for one in batch]
            if len(batch) == 1:
                channel.group.allreduce(sends[0], recvs[0], OPS[self.op], **scales)  # type: ignore[arg-type]
            else:
                channel.group.allreduce_grouped(sends, recvs, OPS[self.op], **scales)  # type: ignore[arg-type]
            for _, target, result in batch:
                if target is not result:
                    self.tensors.copy(result, target)

    def reduce_adasum(self, channel: Channel, given: Sequence[Any], results: Sequence[Any]) -> None:
        """Of tensors of one type, each by itself."""
        raise NotImplementedError


class Allgather(OfTensors):
    """Rows of all ranks, one after another."""
    kind = "allgather"

    def __init__(self, name: Optional[str], inputs: Sequence[Any]) -> None:
        super().__init__(name)
        self.inputs = [self.tensors.packed(one) for one in inputs]
        self.own_number = inputs[0].shape[0] if len(inputs) == 1 and len(inputs[0].shape) else 0

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "type and shape without rows": [[self.tensors.describe(one)[0], "rows" if len(one.shape) else "scalar", *one.shape[1:]]
                                                                          for one in self.inputs]}

    def refusal(self, joined: List[int]) -> Optional[str]:
        if any(len(one.shape) == 0 for one in self.inputs):
            return f"{self}: a tensor of no dimension has no rows to gather; reshape it to [1]"
        return super().refusal(joined)

    def run(self, channel: Channel, numbers: List[int]) -> None:
        n = len(self.inputs)
        sizes = [[number] for number in numbers]  # of each rank, the rows of each tensor
        if n != 1:
            all_of = _integers([0] * channel.size * n)
            channel.group.allgather(_integers([one.shape[0] for one in self.inputs]), all_of)
            sizes = [list(all_of[begin:begin + n]) for begin in range(0, len(all_of), n)]
        self.output = []
        self.sizes = []
        for i, given in enumerate(self.inputs):
            of_ranks = [one[i] for one in sizes]
            result = self.tensors.rows_like(given, sum(of_ranks))
            channel.group.allgather(self.tensors.buffer_of(given), self.tensors.buffer_of(result), counts=[rows(given, one) for one in of_ranks])
            self.output.append(result)
            self.sizes.append(of_ranks)


class Broadcast(OfTensors):
    kind = "broadcast"

    def __init__(self, name: Optional[str], given: Any, result: Any, root: int, root_in_set: int) -> None:
        super().__init__(name)
        self.given, self.result, self.root, self.root_in_set = given, result, root, root_in_set

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "type and shape": self.tensors.describe(self.given), "root rank": self.root}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        target = self.result if self.tensors.is_packed(self.result) else self.tensors.like(self.result)
        if channel.rank == self.root_in_set and target is not self.given:
            self.tensors.copy(target, self.given)
        channel.group.broadcast(self.tensors.buffer_of(target), self.root_in_set, name=self.name)
        if target is not self.result:
            self.tensors.copy(self.result, target)
        self.output = self.result


class Alltoall(OfTensors):
    """splits[r] rows go to rank r."""
    kind = "alltoall"

    def __init__(self, name: Optional[str], given: Any, splits: List[int]) -> None:
        super().__init__(name)
        self.given, self.splits = self.tensors.packed(given), splits

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "type and shape without rows": [self.tensors.describe(self.given)[0], *self.given.shape[1:]]}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        theirs = _integers([0] * channel.size)
        channel.group.alltoall(_integers(self.splits), theirs)
        received = list(theirs)
        result = self.tensors.rows_like(self.given, sum(received))
        channel.group.alltoall(self.tensors.buffer_of(self.given), self.tensors.buffer_of(result),
                               send_counts=[rows(self.given, one) for one in self.splits], recv_counts=[rows(self.given, one) for one in received], name=self.name)
        self.output = (result, self.tensors.integers(received))


class Reducescatter(OfTensors):
    """Rows of the reduction, divided among the ranks; the lower ones have one more where they do not divide."""
    kind = "reducescatter"

    def __init__(self, name: Optional[str], inputs: Sequence[Any], op: int, prescale: float, postscale: float,
                 outputs: Optional[Sequence[Any]] = None) -> None:
        super().__init__(name)
        self.outputs = outputs
        self.inputs, self.op, self.scales = [self.tensors.packed(one) for one in inputs], op, scales_of(prescale, postscale)

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "type and shape": [self.tensors.describe(one) for one in self.inputs], "op": OP_NAMES[self.op],
                "prescale and postscale factors": list(self.scales)}

    def refusal(self, joined: List[int]) -> Optional[str]:
        if self.op not in (Sum, Average):
            return f"{self}: op is {OP_NAMES[self.op]}; it is Average or Sum"
        return super().refusal(joined)

    def run(self, channel: Channel, numbers: List[int]) -> None:
        self.output = []
        for i, given in enumerate(self.inputs):
            of_ranks = shares(given.shape[0], channel.size)
            result = self.outputs[i] if self.outputs is not None else self.tensors.rows_like(given, of_ranks[channel.rank])
            channel.group.reduce_scatter(self.tensors.buffer_of(given), self.tensors.buffer_of(result), OPS[self.op],
                                         counts=[rows(given, share) for share in of_ranks], prescale=self.scales[0], postscale=self.scales[1], name=self.name)
            self.output.append(result)


def of_framework(tensors: Any, *kinds: Any) -> List[Any]:
    """These kinds of operations, on the tensors of the framework whose module is given."""
    return [type(kind.__name__, (kind,), {"tensors": tensors}) for kind in kinds]


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

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "value": self.said}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        pass


class BroadcastBytes(Operation):
    """Bytes of the root, of a length that only it knows."""
    kind = "broadcast of an object"

    def __init__(self, name: Optional[str], data: bytes, root: int, root_in_set: int) -> None:
        super().__init__(name)
        self.data, self.root, self.root_in_set, self.own_number = data, root, root_in_set, len(data)

    def description(self) -> Dict[str, Any]:
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
