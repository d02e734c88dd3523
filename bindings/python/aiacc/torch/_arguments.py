"""Arguments of the calls of torch.distributed: the forms in which they may come, and what is refused, in the words of torch's own back
ends, by which its users know what is wrong. A refused call has started nothing: its exception is a RuntimeError, as theirs, and a ValueError."""
from __future__ import annotations

import functools
from typing import Any, Callable, NoReturn, Sequence, Tuple

import torch

import aiacc

_C = torch._C._distributed_c10d  # which has options that torch.distributed does not export

_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def forms(options: str, tensors: int, *values: str) -> Callable[[Any], Any]:
    """Of a method with so many arguments of tensors before its options, a class of torch.distributed of this name: in place of the options
    come some of `values`, by place or name, as in group.broadcast(tensor, root=0)."""
    def decorate(function: Any) -> Any:
        kind = getattr(_C, options)

        @functools.wraps(function)
        def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if len(arguments) == tensors + 1 and type(arguments[tensors]) is kind and not keywords:  # as torch itself calls
                return function(self, *arguments)
            given, rest = arguments[:tensors], arguments[tensors:]
            opts = keywords.pop("opts", None)
            if rest and (rest[0] is None or hasattr(rest[0], "timeout")):
                opts, rest = rest[0], rest[1:]
            if opts is None:
                opts = kind()
            for name, value in (*zip(values, rest), *((name, keywords.pop(name)) for name in values if name in keywords)):
                if value is not None:
                    setattr(opts, _FIELDS[name], value)
            return function(self, *given, opts=opts, **keywords)
        return call
    return decorate


def in_list(tensors: Any) -> Sequence[Any]:
    """A tensor by itself stands for a list of one."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def in_lists(lists: Any) -> Sequence[Any]:
    """A list of tensors stands for a list of one such list."""
    return [lists] if len(lists) and isinstance(lists[0], torch.Tensor) else lists


def refuse(words: str) -> NoReturn:
    raise aiacc.InvalidArgument(words)


def check_root(root: int, size: int) -> None:
    if not 0 <= root < size:
        refuse(f"invalid root rank: {root} of {size} ranks")


def check_root_tensor(number: int, tensors: Sequence[torch.Tensor]) -> None:
    if not 0 <= number < len(tensors):
        refuse(f"invalid root tensor: {number} of {len(tensors)} tensors")


def check_type(tensor: torch.Tensor, like: torch.Tensor, index: int = 0) -> None:
    if tensor.dtype != like.dtype:
        refuse(f"invalid tensor type at index {index} (expected {like.dtype}, got {tensor.dtype})")


def check_size(tensor: torch.Tensor, like: torch.Tensor, index: int = 0) -> None:
    if tensor.shape != like.shape:
        refuse(f"invalid tensor size at index {index} (expected {tuple(like.shape)}, got {tuple(tensor.shape)})")


def check_layout(tensors: Sequence[torch.Tensor]) -> None:
    for i, one in enumerate(tensors):
        if one.layout != tensors[0].layout:
            refuse(f"invalid tensor layout at index {i} (expected {tensors[0].layout}, got {one.layout})")


def check_alike(tensors: Sequence[torch.Tensor]) -> None:
    """Several tensors of one call."""
    if len(tensors) == 1:
        return
    if not tensors:
        refuse("requires non-empty tensor list")
    check_layout(tensors)
    for i, one in enumerate(tensors):
        check_type(one, tensors[0], i)
        check_size(one, tensors[0], i)


def one_of(tensors: Sequence[torch.Tensor], what: str = "tensor list") -> torch.Tensor:
    if len(tensors) != 1:
        refuse(f"requires a single-element {what}: a call takes one tensor of each rank, and got {len(tensors)}")
    return tensors[0]


def blocks_of(lists: Sequence[Sequence[torch.Tensor]], what: str, size: int) -> Sequence[torch.Tensor]:
    """At the root of a gather or scatter: one tensor for each rank."""
    if len(lists) != 1:
        refuse(f"requires a single-element {what} list")
    if len(lists[0]) != size:
        refuse(f"Incorrect {what} list size {len(lists[0])}. {what.capitalize()} list size should be {size}, same as size of the process group.")
    return lists[0]


def check_no_blocks(lists: Sequence[Any], what: str) -> None:
    if len(lists):
        refuse(f"requires empty {what} on non-root")


def check_gathered(output: torch.Tensor, send: torch.Tensor, size: int) -> None:
    if output.dtype != send.dtype:
        refuse(f"output tensor must have the same type as input tensor: they are of {output.dtype} and {send.dtype}")
    if output.numel() != send.numel() * size:
        refuse(f"output tensor size must be equal to world_size times input tensor size: the output has {output.numel()} elements for {size} ranks "
               f"of {send.numel()} each")


def check_scattered(output: torch.Tensor, send: torch.Tensor, size: int) -> None:
    if output.dtype != send.dtype:
        refuse(f"input tensor must be the same type as the output tensor: they are of {send.dtype} and {output.dtype}")
    if send.numel() != output.numel() * size:
        refuse(f"input tensor must be the same size as output size times world size: the input has {send.numel()} elements for {size} ranks of "
               f"{output.numel()} each")


def check_lists_of_ranks(outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], size: int) -> None:
    """Of allgather_coalesced: outputs[rank][i] is tensor i of that rank."""
    if not inputs:
        refuse("requires non-empty input tensor list")
    if len(outputs) != size:
        refuse(f"output lists should be equal to world size: {len(outputs)} lists for {size} ranks")
    for of_rank in outputs:
        if len(of_rank) != len(inputs):
            refuse(f"invalid output size: (expected length {len(inputs)}, got {len(of_rank)})")
        for i, (one, like) in enumerate(zip(of_rank, inputs)):
            if one.shape != like.shape:
                refuse(f"invalid size of output tensor at index {i} (expected length {tuple(like.shape)}, got {tuple(one.shape)})")
            check_type(one, like, i)


def check_of_each_rank(outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], size: int) -> None:
    """Of allgather: for each input a list that has it of each rank, so all inputs of each rank."""
    if not inputs:
        refuse("requires non-empty input tensor list")
    if len(outputs) != len(inputs):
        refuse(f"requires input/output tensor lists to have the same length: {len(outputs)} and {len(inputs)}")
    for blocks in outputs:
        if len(blocks) != size * len(inputs):
            refuse(f"invalid output tensor list: it has {len(blocks)} tensors for {len(inputs)} of each of {size} ranks")
    for i, one in enumerate(inputs):
        check_type(one, inputs[0], i)
        if len(inputs) > 1:
            check_size(one, inputs[0], i)
    for blocks in outputs:
        for i, one in enumerate(blocks):
            check_type(one, inputs[0], i)


def splits_of(what: str, tensor: torch.Tensor, splits: Sequence[int], size: int) -> Tuple[int, ...]:
    """Bytes for each rank; equal ones if `splits`, in rows, is empty."""
    rows = tensor.shape[0] if tensor.dim() else tensor.numel()
    if not splits:
        if rows % size:
            refuse(f"Tensor's dim 0 does not divide equally across group size: the {what} has {rows} rows for {size} ranks; give the split sizes")
        return (tensor.numel() * tensor.element_size() // size,) * size
    if len(splits) != size:
        refuse(f"Number of tensor splits not equal to group size: the {what}'s split sizes are {list(splits)} for {size} ranks")
    if sum(splits) != rows:
        refuse(f"Split sizes doesn't match total dim 0 size: the {what} has {rows} rows for {size} ranks, and its split sizes are {list(splits)}")
    each = tensor.numel() * tensor.element_size() // rows if rows else 0
    return tuple(one * each for one in splits)
