"""A process group of torch.distributed on a group of aiacc with the same members. CPU tensors. A failed operation raises
torch.distributed.DistBackendError (RuntimeError before torch 2.0), which is also the aiacc.Error of its status."""
from __future__ import annotations

import collections
import ctypes as c
from datetime import timedelta
from typing import Any, Deque, List, Optional, Sequence

import torch
import torch.distributed as dist

import aiacc
from aiacc import _abi
from aiacc._library import library
from aiacc.buffers import DType
from aiacc.runtime import size_array
from aiacc.torch import tensors as types
from aiacc.torch._blocks import bytes_of, checked, checked_tag, dense_of, gather_bytes, one_of, only, same_form, scatter_bytes
from aiacc.torch._monitored import monitored_barrier
from aiacc.torch._profile import recorded
from aiacc.torch.work import Started, Work, failure

_TORCH_1 = torch.__version__.startswith("1.")
_OPS = {"SUM": aiacc.Op.SUM, "AVG": aiacc.Op.AVG, "PRODUCT": aiacc.Op.PROD, "MIN": aiacc.Op.MIN, "MAX": aiacc.Op.MAX,
        "BAND": aiacc.Op.BAND, "BOR": aiacc.Op.BOR, "BXOR": aiacc.Op.BXOR}
_LOGICAL = {"SUM": aiacc.Op.BOR, "PRODUCT": aiacc.Op.BAND, "MIN": aiacc.Op.BAND, "MAX": aiacc.Op.BOR}
_LINEAR = ("SUM", "AVG", "PREMUL_SUM")


def _name_of(op: Any) -> str:
    found = getattr(op, "op", op)  # a ReduceOp holds a ReduceOp.RedOpType (torch 2.0)
    return str(found).rpartition(".")[2]


def _factor_of(op: Any) -> float:
    """Of ReduceOp.PREMUL_SUM: a number, or a tensor of one element."""
    try:
        _, factor = op.__getstate__()
    except (AttributeError, TypeError, ValueError):
        raise ValueError("ReduceOp.PREMUL_SUM has no factor: make it with torch.distributed._make_nccl_premul_sum(factor)") from None
    return float(factor)


def _milliseconds(timeout: Any) -> int:
    """As aiacc_attr_t has it; 0 (the group's) for the values by which torch says that none was given."""
    if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
        return 0
    return max(1, int(timeout.total_seconds() * 1000))


class AiaccProcessGroup(dist.ProcessGroup):
    """torch.distributed calls these functions; users call torch.distributed."""

    def __init__(self, group: aiacc.Group, rank: int, size: int, global_ranks: Sequence[int]) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._group: Optional[aiacc.Group] = group
        self._global_ranks = list(global_ranks)
        self._names = {"name": "", "desc": ""}
        # Where only C++ holds a Work (join() of DistributedDataParallel; everywhere in torch 1), its Python half, which knows the end, is
        # forgotten, and C++ waits forever: it lives here until it was asked for its end.
        self._unasked: Deque[Work] = collections.deque(maxlen=1024 if _TORCH_1 else 64)
        self._asked_last: Deque[Work] = collections.deque(maxlen=4)  # and for a while longer: C++ asks for the future after the end

    # --- what torch asks of any group

    def getBackendName(self) -> str:
        return "aiacc"

    # Torch's own look at a back end of C++, which a group in Python has none of.
    def getGroupName(self) -> str:
        return self._names["name"]

    def setGroupName(self, name: str) -> None:
        self._names["name"] = name

    @property
    def _device_types(self) -> List[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, _: torch.device) -> AiaccProcessGroup:
        return self

    def getGroupDesc(self) -> str:
        return self._names["desc"]

    def setGroupDesc(self, text: str) -> None:
        self._names["desc"] = text

    def _get_sequence_number_for_group(self) -> int:
        return self._handle().sequence

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to agree on: the number counts the collectives of the group."""

    def shutdown(self) -> None:
        group, self._group = self._group, None
        if group is not None and aiacc.initialized():
            try:
                group.free()
            except aiacc.Error:
                pass  # the job is over

    def abort(self) -> None:
        if self._group is not None and aiacc.initialized():
            self._group.abort("torch.distributed aborted the process group")

    def __del__(self) -> None:
        try:
            self.shutdown()
        except Exception:  # noqa: BLE001: at the end of Python modules are gone before objects
            pass

    def _handle(self) -> aiacc.Group:
        if self._group is None:
            raise RuntimeError("the process group was destroyed")
        return self._group

    # --- starting an operation

    def _start(self, name: str, arguments: Sequence[Any], results: Any, kept: Any = None, options: Any = None, finish: Any = None,
               prescale: float = 0.0, source: Any = None) -> Work:
        """Starts aiacc_`name`. `results` is the Work's result, `kept` lives until it completed, then `finish` runs."""
        attr = _abi.Attr(size=c.sizeof(_abi.Attr), timeout_ms=_milliseconds(getattr(options, "timeout", None)), prescale=prescale)
        # With asyncOp False nobody asks for the future, which is what the callback serves.
        waits = getattr(options, "asyncOp", True) is False
        work = Work(results, (arguments, kept), finish, source)
        request = _abi.Handle()
        if not waits:
            attr.callback, attr.callback_arg = Started.callback, Started.add(work)
        try:
            getattr(library(), f"aiacc_{name}")(*arguments, self._handle().handle, c.byref(attr), c.byref(request))
        except aiacc.Error as error:
            Started.forget(work)
            raise failure(error) from None
        work.began(request.value)
        if waits:
            work.wait()
        else:
            self._unasked.append(work)
            work.asked = self._asked
        return work

    def _asked(self, work: Work) -> None:
        try:
            self._unasked.remove(work)
        except ValueError:
            pass
        self._asked_last.append(work)

    def _reduction(self, tensor: torch.Tensor, op: Any) -> Any:
        """(elements as aiacc has them, its type, its operator, prescale); complex numbers are pairs."""
        name = _name_of(op)
        if tensor.is_complex():
            if name not in _LINEAR:
                raise ValueError(f"ReduceOp.{name} is not defined on complex numbers")
            tensor = torch.view_as_real(tensor)
        if not types.is_known(tensor.dtype):
            raise ValueError(f"tensors of {tensor.dtype} cannot be reduced")
        dtype = types.type_of(tensor.dtype)
        if name == "PREMUL_SUM":
            return tensor, dtype, aiacc.Op.SUM, _factor_of(op)
        operators = {**_OPS, **_LOGICAL} if tensor.dtype == torch.bool else _OPS
        if name not in operators:
            raise ValueError(f"ReduceOp.{name} is unknown to aiacc")
        return tensor, dtype, operators[name], 0.0

    # --- collectives

    @recorded("all_reduce", 0)
    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        opts = opts if opts is not None else dist.AllreduceOptions()
        tensor = one_of([tensors] if isinstance(tensors, torch.Tensor) else tensors)
        if tensor.is_sparse:
            return self._allreduce_sparse(tensor, opts)
        dense = dense_of(tensor)
        elements, dtype, op, prescale = self._reduction(dense, opts.reduceOp)
        place = elements.data_ptr()
        finish = None if dense is tensor else lambda: tensor.copy_(dense)
        return self._start("allreduce", (place, place, elements.numel(), dtype, op), [tensor], dense, opts, finish, prescale)

    @recorded("all_reduce", 0)
    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        opts = opts if opts is not None else dist.AllreduceCoalescedOptions()
        dense = [dense_of(one) for one in tensors]
        same_form("the tensors of one call", dense)
        if not dense:
            return Work.done([])
        parts = [self._reduction(one, opts.reduceOp) for one in dense]
        _, dtype, op, prescale = parts[0]
        places = (c.c_void_p * len(parts))(*(part[0].data_ptr() for part in parts))
        arguments = (len(parts), places, places, size_array([part[0].numel() for part in parts]), dtype, op)

        def finish() -> None:
            for given, result in zip(tensors, dense):
                if given is not result:
                    given.copy_(result)
        return self._start("allreduce_grouped", arguments, list(tensors), dense, opts, finish, prescale)

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> Work:
        """Gathers indices and values of all ranks and adds up, as torch's Gloo does. Blocks."""
        if _name_of(opts.reduceOp) != "SUM":
            raise ValueError("sparse tensors are reduced by ReduceOp.SUM only")
        mine = tensor.coalesce()
        counts = torch.zeros(self._size, dtype=torch.int64)
        self._allgather_flat(counts, torch.tensor([mine._nnz()]), None).wait()
        each = counts.tolist()
        indices = [torch.empty(mine.indices().shape[0], n, dtype=torch.int64) for n in each]
        values = [torch.empty(n, *mine.values().shape[1:], dtype=mine.dtype) for n in each]
        self.allgather([indices], [mine.indices().contiguous()]).wait()
        self.allgather([values], [mine.values().contiguous()]).wait()
        total = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values, 0), tensor.shape).coalesce()
        tensor.copy_(total)
        return Work.done([tensor])

    @recorded("broadcast", 0)
    def broadcast(self, tensors: List[torch.Tensor], opts: Any = None, **_: Any) -> Work:
        opts = opts if opts is not None else dist.BroadcastOptions()
        tensor = one_of([tensors] if isinstance(tensors, torch.Tensor) else tensors)
        dense = dense_of(tensor)
        finish = None if dense is tensor or opts.rootRank == self._rank else lambda: tensor.copy_(dense)
        return self._start("broadcast", (dense.data_ptr(), bytes_of(dense), DType.UINT8, opts.rootRank), [tensor], dense, opts, finish)

    @recorded("reduce", 0)
    def reduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        opts = opts if opts is not None else dist.ReduceOptions()
        tensor = one_of(tensors)
        dense = dense_of(tensor)
        elements, dtype, op, prescale = self._reduction(dense, opts.reduceOp)
        root = opts.rootRank == self._rank
        arguments = (elements.data_ptr(), elements.data_ptr() if root else None, elements.numel(), dtype, op, opts.rootRank)
        finish = None if dense is tensor or not root else lambda: tensor.copy_(dense)
        return self._start("reduce", arguments, [tensor], dense, opts, finish, prescale)

    def _allgather_flat(self, output: torch.Tensor, send: torch.Tensor, opts: Any) -> Work:
        """Equal blocks, one after another in `output`; `send` may be this rank's block of it."""
        if output.numel() != send.numel() * self._size:
            raise ValueError(f"the output has {output.numel()} elements for {self._size} ranks of {send.numel()} each")
        same_form("input and output", [output, send])
        dense, given = dense_of(output), dense_of(send)
        finish = None if dense is output else lambda: output.copy_(dense)
        return self._start("allgather", (given.data_ptr(), dense.data_ptr(), bytes_of(given), DType.UINT8), [output], (given, dense), opts, finish)

    @recorded("all_gather_into_tensor", 1)
    def _allgather_base(self, output: torch.Tensor, send: torch.Tensor, opts: Any = None) -> Work:
        return self._allgather_flat(output, send, opts)

    all_gather_single = _allgather_base

    @recorded("all_gather", 1)
    def allgather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        send, blocks = dense_of(one_of(inputs)), list(only(outputs))
        self._expect_blocks("outputs", blocks)
        same_form("input and outputs", [send, *blocks])
        counts = [bytes_of(checked(one)) for one in blocks]
        if counts[self._rank] != bytes_of(send):
            raise ValueError(f"the input has {bytes_of(send)} bytes, and the output for this rank {counts[self._rank]}")
        flat = torch.empty(sum(counts), dtype=torch.uint8)
        return self._start("allgatherv", (send.data_ptr(), bytes_of(send), flat.data_ptr(), size_array(counts), None, DType.UINT8),
                           [blocks], (send, flat), opts, lambda: scatter_bytes(flat, blocks))

    @recorded("all_gather_into_tensor", 1)
    def all_gather_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        return Work.all([self._allgather_flat(output, send, opts) for output, send in zip(outputs, inputs)], list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @recorded("all_gather", 1)
    def allgather_coalesced(self, output_lists: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        """output_lists[rank][i] is tensor i of that rank."""
        works = [self.allgather([[of_rank[i] for of_rank in output_lists]], [send], opts) for i, send in enumerate(inputs)]
        return Work.all(works, output_lists)

    @recorded("gather", 1)
    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        opts = opts if opts is not None else dist.GatherOptions()
        send = dense_of(one_of(inputs))
        if opts.rootRank != self._rank:
            arguments = (send.data_ptr(), bytes_of(send), None, None, None, DType.UINT8, opts.rootRank)
            return self._start("gatherv", arguments, [], send, opts)
        blocks = list(only(outputs))
        self._expect_blocks("outputs", blocks)
        counts = [bytes_of(checked(one)) for one in blocks]
        flat = torch.empty(sum(counts), dtype=torch.uint8)
        arguments = (send.data_ptr(), bytes_of(send), flat.data_ptr(), size_array(counts), None, DType.UINT8, opts.rootRank)
        return self._start("gatherv", arguments, [blocks], (send, flat), opts, lambda: scatter_bytes(flat, blocks))

    @recorded("scatter", 1)
    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None) -> Work:
        opts = opts if opts is not None else dist.ScatterOptions()
        output = one_of(outputs)
        dense = dense_of(output)
        finish = None if dense is output else lambda: output.copy_(dense)
        if opts.rootRank != self._rank:
            arguments = (None, None, None, dense.data_ptr(), bytes_of(dense), DType.UINT8, opts.rootRank)
            return self._start("scatterv", arguments, [output], dense, opts, finish)
        blocks = list(only(inputs))
        self._expect_blocks("inputs", blocks)
        flat = gather_bytes(blocks)
        counts = size_array([bytes_of(one) for one in blocks])
        arguments = (flat.data_ptr(), counts, None, dense.data_ptr(), bytes_of(dense), DType.UINT8, opts.rootRank)
        return self._start("scatterv", arguments, [output], (flat, dense), opts, finish)

    def _reduce_scatter_flat(self, output: torch.Tensor, send: torch.Tensor, opts: Any) -> Work:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        if send.numel() != output.numel() * self._size:
            raise ValueError(f"the input has {send.numel()} elements for {self._size} ranks of {output.numel()} each")
        same_form("input and output", [output, send])
        dense, given = dense_of(output), dense_of(send)
        elements, dtype, op, prescale = self._reduction(given, opts.reduceOp)
        count = dense.numel() * (2 if dense.is_complex() else 1)
        finish = None if dense is output else lambda: output.copy_(dense)
        arguments = (elements.data_ptr(), dense.data_ptr(), count, dtype, op)
        return self._start("reduce_scatter", arguments, [output], (given, dense), opts, finish, prescale)

    @recorded("reduce_scatter_tensor", 1)
    def _reduce_scatter_base(self, output: torch.Tensor, send: torch.Tensor, opts: Any = None) -> Work:
        return self._reduce_scatter_flat(output, send, opts)

    reduce_scatter_single = _reduce_scatter_base

    @recorded("reduce_scatter_tensor", 1)
    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        return Work.all([self._reduce_scatter_flat(output, send, opts) for output, send in zip(outputs, inputs)], list(outputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @recorded("reduce_scatter", 1)
    def reduce_scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None) -> Work:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        output, blocks = one_of(outputs), list(only(inputs))
        self._expect_blocks("inputs", blocks)
        same_form("inputs and output", [output, *blocks])
        flat = torch.cat([checked(one).reshape(-1) for one in blocks])
        elements, dtype, op, prescale = self._reduction(flat, opts.reduceOp)
        parts = 2 if flat.is_complex() else 1
        dense = dense_of(output)
        if dense.numel() != blocks[self._rank].numel():
            raise ValueError(f"the output has {dense.numel()} elements, and the input for this rank {blocks[self._rank].numel()}")
        finish = None if dense is output else lambda: output.copy_(dense)
        arguments = (elements.data_ptr(), dense.data_ptr(), size_array([one.numel() * parts for one in blocks]), dtype, op)
        return self._start("reduce_scatterv", arguments, [output], (flat, dense), opts, finish, prescale)

    @recorded("all_to_all", 1)
    def alltoall_base(self, output: torch.Tensor, send: torch.Tensor, output_splits: Sequence[int], input_splits: Sequence[int],
                      opts: Any = None) -> Work:
        same_form("input and output", [output, send])
        dense, given = dense_of(output), dense_of(send)
        there, here = self._splits("input", given, input_splits), self._splits("output", dense, output_splits)
        finish = None if dense is output else lambda: output.copy_(dense)
        arguments = (given.data_ptr(), size_array(there), None, dense.data_ptr(), size_array(here), None, DType.UINT8)
        return self._start("alltoallv", arguments, [output], (given, dense), opts, finish)

    all_to_all_single = alltoall_base

    @recorded("all_to_all", 1)
    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        self._expect_blocks("outputs", outputs)
        self._expect_blocks("inputs", inputs)
        same_form("inputs and outputs", [*outputs, *inputs])
        blocks = list(outputs)
        given = gather_bytes(inputs)
        here = [bytes_of(checked(one)) for one in blocks]
        flat = torch.empty(sum(here), dtype=torch.uint8)
        there = size_array([bytes_of(one) for one in inputs])
        arguments = (given.data_ptr(), there, None, flat.data_ptr(), size_array(here), None, DType.UINT8)
        return self._start("alltoallv", arguments, blocks, (given, flat), opts, lambda: scatter_bytes(flat, blocks))

    @recorded("barrier")
    def barrier(self, opts: Any = None) -> Work:
        return self._start("barrier", (), [], options=opts)

    def monitored_barrier(self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
        """As torch's. After an error the group is over."""
        monitored_barrier(self._handle(), self._rank, timeout, wait_all_ranks)

    # --- messages

    @recorded("send", 0)
    def send(self, tensors: List[torch.Tensor], to: int, tag: int = 0) -> Work:
        given = dense_of(one_of(tensors))
        return self._start("send", (given.data_ptr(), bytes_of(given), DType.UINT8, to, checked_tag(tag)), [], given)

    @recorded("recv", 0)
    def recv(self, tensors: List[torch.Tensor], source: int, tag: int = 0) -> Work:
        tensor = one_of(tensors)
        dense = dense_of(tensor)
        finish = None if dense is tensor else lambda: tensor.copy_(dense)
        return self._start("recv", (dense.data_ptr(), bytes_of(dense), DType.UINT8, source, checked_tag(tag)), [tensor], dense, finish=finish,
                           source=c.c_int(source))

    @recorded("recvAnySource", 0)
    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Work:
        tensor = one_of(tensors)
        dense = dense_of(tensor)
        source = c.c_int(-1)
        finish = None if dense is tensor else lambda: tensor.copy_(dense)
        return self._start("recv_any", (dense.data_ptr(), bytes_of(dense), DType.UINT8, c.byref(source), checked_tag(tag)), [tensor], dense,
                           finish=finish, source=source)

    # --- lists of blocks

    def _expect_blocks(self, what: str, blocks: Sequence[torch.Tensor]) -> None:
        if len(blocks) != self._size:
            raise ValueError(f"{what} has {len(blocks)} tensors for the {self._size} ranks of the group")

    def _splits(self, what: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
        """Bytes for each rank; equal ones if `splits`, in rows, is empty."""
        rows = tensor.shape[0] if tensor.dim() else tensor.numel()
        if not splits:
            if rows % self._size:
                raise ValueError(f"the {what} has {rows} rows for {self._size} ranks: give the split sizes")
            return [bytes_of(tensor) // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise ValueError(f"the {what} has {rows} rows for {self._size} ranks, and its split sizes are {list(splits)}")
        return [one * (bytes_of(tensor) // rows if rows else 0) for one in splits]
