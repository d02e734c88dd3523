"""A process group of torch.distributed on a group of aiacc with the same members. Tensors of other devices than the CPU are copied to
the host and back. A failed operation raises torch.distributed.DistBackendError (RuntimeError before torch 2.0), which is also the aiacc.Error
of its status."""
from __future__ import annotations

import collections
import ctypes as c
import functools
import types
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

import aiacc
from aiacc import _abi
from aiacc._library import library
from aiacc.buffers import DType
from aiacc.errors import OK, error
from aiacc.runtime import size_array
from aiacc.torch import _arguments as given_as
from aiacc.torch._arguments import forms, in_list, in_lists, one_of, refuse
from aiacc.torch._blocks import bytes_of, checked, checked_tag, dense_of, gather_bytes, scatter_bytes
from aiacc.torch._monitored import monitored_barrier
from aiacc.torch._profile import is_observed, recorded
from aiacc.torch._reductions import name_of, of_one_rank, reduction
from aiacc.torch.tensors import put
from aiacc.torch.work import Dropped, Started, Work, failure

_ATTR_SIZE = c.sizeof(_abi.Attr)
_LONG_BYTES = 4 << 20  # as in _shim.cc; steps of DDP with buckets of 4 MiB took a tenth longer with waiting threads, one run on two cores
_NO_TIME = timedelta(0)
_FORGETS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)
_MOST_UNASKED = 1024 if _FORGETS else 64
_C: Any = torch._C._distributed_c10d


def _milliseconds(timeout: Any) -> int:
    """As aiacc_attr_t has it; 0 (the group's) for the values by which torch says that none was given."""
    if not isinstance(timeout, timedelta) or timeout <= _NO_TIME:
        return 0
    return max(1, int(timeout.total_seconds() * 1000))


@functools.lru_cache(None)
def _function(name: str) -> Any:
    """Of the library. Its status is the caller's to check, as a check by ctypes costs each call more."""
    checked_one = getattr(library(), f"aiacc_{name}")
    made = library()[f"aiacc_{name}"]
    made.argtypes, made.restype = checked_one.argtypes, c.c_int
    return made


def _is_long(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and bytes_of(tensor) >= _LONG_BYTES


def _copies(dense: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Optional[Callable[[], None]]:
    """What brings a result to where it is wanted. None: it is there."""
    others = [one for one in tensors if one is not dense]
    if not others:
        return None

    def copy() -> None:
        for one in others:
            put(one, dense)
    return copy


class AiaccProcessGroup(dist.ProcessGroup):
    """torch.distributed calls these functions; users call torch.distributed."""

    def __init__(self, group: aiacc.Group, rank: int, size: int, global_ranks: Sequence[int], store: Any = None,
                 timeout: timedelta = dist.distributed_c10d.default_pg_timeout, made_of: Sequence[int] = ()) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch's annotations have another constructor
        self._store = store
        self._rank, self._size = rank, size
        self._group: Optional[aiacc.Group] = group
        self._global_ranks = list(global_ranks)
        self._names = {"name": "", "desc": ""}
        self._timeout, self._made_of = timeout, list(made_of)
        self._timeout_ms = 0  # of operations without one of their own; 0: the group's
        # Where only C++ holds a Work (join() of DistributedDataParallel; functional collectives in torch 2.6; everywhere before), its
        # Python half, which knows the end, is forgotten, and C++ waits forever: it lives here until it was asked for its end.
        self._unasked: Dict[int, Work] = {}  # by id()
        self._asked_last: Deque[Work] = collections.deque(maxlen=4)  # and for a while longer: C++ asks for the future after the end
        self._coalesced: Optional[List[Work]] = None  # what began between _start_coalescing and _end_coalescing

    # --- what torch asks of any group

    supports_splitting = supports_coalescing = supports_shrinking = supports_time_estimate = False
    supports_reconfigure = supports_window = supports_abort_hooks = False

    def supports_tensor_alloc(self, _: torch.device) -> bool:
        return False

    def getBackendName(self) -> str:
        return "aiacc"

    # Torch's own look at a back end of C++, which a group in Python has none of. C++ calls the names in its own style (torch >= 2.6).
    def getGroupName(self) -> str:
        return self._names["name"]

    def setGroupName(self, name: str) -> None:
        self._names["name"] = name

    _set_group_name = setGroupName
    group_name = property(getGroupName)

    def get_group_store(self) -> Any:
        """What torch made the group with."""
        return self._store

    @property
    def _device_types(self) -> List[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, _: torch.device) -> Any:
        return self

    def getGroupDesc(self) -> str:
        return self._names["desc"]

    def setGroupDesc(self, desc: str) -> None:
        self._names["desc"] = desc

    _set_group_desc = setGroupDesc
    group_desc = property(getGroupDesc)

    def set_timeout(self, timeout: timedelta) -> None:
        """Of operations that begin from now on."""
        self._timeout_ms = _milliseconds(timeout)

    _set_default_timeout = set_timeout

    @property
    def options(self) -> Any:
        """What the group was made with, as other back ends tell it. To be read: what is written to it changes nothing."""
        timeout = timedelta(milliseconds=self._timeout_ms) if self._timeout_ms else self._timeout
        members = {"group_name": self._names["name"], "global_ranks_in_group": self._made_of}
        try:
            made = _C.Backend.Options("aiacc", timeout)
            for name, value in members.items():
                setattr(made, name, value)
        except (AttributeError, TypeError):  # the class of an older torch cannot be made in Python, or has fewer members
            made = types.SimpleNamespace(backend="aiacc", _timeout=timeout, **members)
        return made

    def _get_sequence_number_for_group(self) -> int:
        return self._handle().sequence

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to agree on: the number counts the collectives of the group."""

    def shutdown(self) -> None:
        group, self._group = self._group, None
        self._unasked.clear()
        self._asked_last.clear()
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
        timeout_ms = _milliseconds(getattr(options, "timeout", None)) or self._timeout_ms
        waits = getattr(options, "asyncOp", True) is False
        # What is to be done at the end is done then, whether or not anybody waits: the library tells of it by a callback, which costs more
        # than a short operation. So it does of a long one, as a thread that waits for its future would drive it at once, and on the
        # same core gradients are still computed.
        is_told = not waits and (finish is not None or is_observed() or _is_long(kept))
        work = Work(results, (arguments, kept), finish, source)
        attr = None
        if is_told or timeout_ms or prescale:  # without them the library has a shorter way
            attributes = _abi.Attr(size=_ATTR_SIZE, timeout_ms=timeout_ms, prescale=prescale)
            attr = c.byref(attributes)
        if is_told:
            attributes.callback, attributes.callback_arg = Started.callback, Started.add(work)
        Dropped.look()
        request = _abi.Handle()
        status = _function(name)(*arguments, self._handle().handle, attr, c.byref(request))
        if status != OK:
            found = error(library(), status)
            Started.forget(work)
            raise failure(found)
        work.began(request.value)
        if waits:
            work.wait()
        else:
            self._keep(work)
        return work

    def _keep(self, work: Work) -> Work:
        """Until it was asked for its end."""
        self._unasked[id(work)] = work
        if len(self._unasked) > _MOST_UNASKED:
            del self._unasked[next(iter(self._unasked))]
        work.asked = self._asked
        if (coalesced := self._coalesced) is not None:
            coalesced.append(work)
        return work

    def _all(self, works: Sequence[Work], results: Any) -> Work:
        for one in works:  # the whole has them
            self._unasked.pop(id(one), None)
        return self._keep(Work.all(works, results))

    def _asked(self, work: Work) -> None:
        self._unasked.pop(id(work), None)
        self._asked_last.append(work)

    # What _coalescing_manager calls where it is given a device, as DeepSpeed does. NCCL begins what is called between them at the end.
    def _start_coalescing(self, *_: Any) -> None:
        self._coalesced = []

    def _end_coalescing(self, *_: Any) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return self._all(works, [])

    # --- collectives

    @recorded("all_reduce", 0)
    @forms("AllreduceOptions", 1, "op", "timeout")
    def allreduce(self, tensors: Any, opts: Any) -> Work:
        """Several tensors are reduced with each other too, and get the same result."""
        several = in_list(tensors)
        given_as.check_alike(several)
        if several[0].is_sparse:
            return self._allreduce_sparse(several, opts)
        dense = dense_of(of_one_rank(several, opts.reduceOp))
        elements, dtype, op, prescale = reduction(dense, opts.reduceOp)
        place = elements.data_ptr()
        return self._start("allreduce", (place, place, elements.numel(), dtype, op), list(several), dense, opts, _copies(dense, several), prescale)

    @recorded("all_reduce", 0)
    @forms("AllreduceCoalescedOptions", 1)
    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        if not tensors:
            refuse("requires non-empty tensor list")
        given_as.check_layout(tensors)
        dense = [dense_of(one) for one in tensors]
        if any(one.dtype != dense[0].dtype for one in dense):
            refuse(f"tensors must all have the same type: they are of {', '.join(sorted({str(one.dtype) for one in dense}))}")
        parts = [reduction(one, opts.reduceOp) for one in dense]
        _, dtype, op, prescale = parts[0]
        places = (c.c_void_p * len(parts))(*(part[0].data_ptr() for part in parts))
        arguments = (len(parts), places, places, size_array([part[0].numel() for part in parts]), dtype, op)

        def finish() -> None:
            for given, result in zip(tensors, dense):
                if given is not result:
                    put(given, result)
        return self._start("allreduce_grouped", arguments, list(tensors), dense, opts, finish, prescale)

    def _allreduce_sparse(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Gathers indices and values of all ranks and adds up, as torch's Gloo does. Blocks."""
        if name_of(opts.reduceOp) != "SUM":
            refuse("unsupported reduction operation: sparse tensors are reduced by ReduceOp.SUM only")
        mine = of_one_rank(tensors, opts.reduceOp).coalesce().cpu()
        counts = torch.zeros(self._size, dtype=torch.int64, device="cpu")
        self._allgather_flat(counts, torch.tensor([mine._nnz()], device="cpu"), None).wait()
        each = counts.tolist()
        indices = [torch.empty(mine.indices().shape[0], n, dtype=torch.int64, device="cpu") for n in each]
        values = [torch.empty(n, *mine.values().shape[1:], dtype=mine.dtype, device="cpu") for n in each]
        self.allgather([indices], [mine.indices().contiguous()]).wait()
        self.allgather([values], [mine.values().contiguous()]).wait()
        total = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values, 0), mine.shape, device="cpu").coalesce()
        for one in tensors:
            put(one, total.to(one.device))
        return self._keep(Work.done(list(tensors)))

    @recorded("broadcast", 0)
    @forms("BroadcastOptions", 1, "root", "timeout")
    def broadcast(self, tensors: Any, opts: Any, **_: Any) -> Work:
        """To several tensors of each rank, from the root's of number opts.rootTensor."""
        several = in_list(tensors)
        given_as.check_root(opts.rootRank, self._size)
        given_as.check_root_tensor(opts.rootTensor, several)
        given_as.check_alike(several)
        source = several[opts.rootTensor]
        dense = dense_of(source)
        targets = [one for one in several if one is not source or opts.rootRank != self._rank]
        return self._start("broadcast", (dense.data_ptr(), bytes_of(dense), DType.UINT8, opts.rootRank), list(several), dense, opts,
                           _copies(dense, targets))

    @recorded("reduce", 0)
    @forms("ReduceOptions", 1, "root", "op", "timeout")
    def reduce(self, tensors: Any, opts: Any) -> Work:
        given_as.check_root(opts.rootRank, self._size)
        given_as.check_root_tensor(opts.rootTensor, in_list(tensors))
        tensor = one_of(in_list(tensors))
        dense = dense_of(tensor)
        elements, dtype, op, prescale = reduction(dense, opts.reduceOp)
        root = opts.rootRank == self._rank
        arguments = (elements.data_ptr(), elements.data_ptr() if root else None, elements.numel(), dtype, op, opts.rootRank)
        return self._start("reduce", arguments, [tensor], dense, opts, _copies(dense, [tensor]) if root else None, prescale)

    def _allgather_flat(self, output: torch.Tensor, send: torch.Tensor, opts: Any) -> Work:
        """Equal blocks, one after another in `output`; `send` may be this rank's block of it."""
        given_as.check_gathered(output, send, self._size)
        dense, given = dense_of(output), dense_of(send)
        return self._start("allgather", (given.data_ptr(), dense.data_ptr(), bytes_of(given), DType.UINT8), [output], (given, dense), opts,
                           _copies(dense, [output]))

    @recorded("all_gather_into_tensor", 1)
    def _allgather_base(self, output: torch.Tensor, send: torch.Tensor, opts: Any = None) -> Work:
        return self._allgather_flat(output, send, opts)

    all_gather_single = _allgather_base

    @recorded("all_gather", 1)
    @forms("AllgatherOptions", 2, "timeout")
    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        """Each of several lists gets all tensors of all ranks. Ranks may have different sizes, as NCCL's allows."""
        lists, sends = in_lists(outputs) if isinstance(inputs, torch.Tensor) else outputs, in_list(inputs)
        given_as.check_of_each_rank(lists, sends, self._size)
        send = gather_bytes(sends) if len(sends) > 1 else dense_of(sends[0])
        counts = [0] * self._size  # of each rank
        for i, one in enumerate(lists[0]):
            counts[i // len(sends)] += bytes_of(checked(one))
        if counts[self._rank] != bytes_of(send):
            refuse(f"invalid tensor size: the input has {bytes_of(send)} bytes, and the output for this rank {counts[self._rank]}")
        flat = torch.empty(sum(counts), dtype=torch.uint8, device="cpu")

        def finish() -> None:
            for blocks in lists:
                scatter_bytes(flat, blocks)
        return self._start("allgatherv", (send.data_ptr(), bytes_of(send), flat.data_ptr(), size_array(counts), None, DType.UINT8),
                           list(lists[0]) if len(lists) == 1 else lists, (send, flat), opts, finish)

    @recorded("all_gather_into_tensor", 1)
    def all_gather_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        return self._all([self._allgather_flat(output, send, opts) for output, send in zip(outputs, inputs)], list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @recorded("all_gather", 1)
    def allgather_coalesced(self, output_lists: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        """output_lists[rank][i] is tensor i of that rank."""
        given_as.check_lists_of_ranks(output_lists, inputs, self._size)
        works = [self.allgather([[of_rank[i] for of_rank in output_lists]], [send], opts) for i, send in enumerate(inputs)]
        return self._all(works, output_lists)

    @recorded("gather", 1)
    @forms("GatherOptions", 2, "root", "timeout")
    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        given_as.check_root(opts.rootRank, self._size)
        lists = in_lists(outputs)
        given = one_of(in_list(inputs), "input tensor list")
        if opts.rootRank != self._rank:
            given_as.check_no_blocks(lists, "output")
            send = dense_of(given)
            return self._start("gatherv", (send.data_ptr(), bytes_of(send), None, None, None, DType.UINT8, opts.rootRank), [], send, opts)
        blocks = list(given_as.blocks_of(lists, "output", self._size))
        for i, one in enumerate(blocks):
            given_as.check_type(one, given, i)
        given_as.check_size(blocks[self._rank], given, self._rank)
        send = dense_of(given)
        counts = [bytes_of(checked(one)) for one in blocks]
        flat = torch.empty(sum(counts), dtype=torch.uint8, device="cpu")
        arguments = (send.data_ptr(), bytes_of(send), flat.data_ptr(), size_array(counts), None, DType.UINT8, opts.rootRank)
        return self._start("gatherv", arguments, blocks, (send, flat), opts, lambda: scatter_bytes(flat, blocks))

    @recorded("scatter", 1)
    @forms("ScatterOptions", 2, "root", "timeout")
    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        given_as.check_root(opts.rootRank, self._size)
        lists = in_lists(inputs)
        output = one_of(in_list(outputs), "output tensor list")
        if opts.rootRank != self._rank:
            given_as.check_no_blocks(lists, "input")
            dense = dense_of(output)
            nothing = (None, None, None, dense.data_ptr(), bytes_of(dense), DType.UINT8, opts.rootRank)
            return self._start("scatterv", nothing, [output], dense, opts, _copies(dense, [output]))
        blocks = list(given_as.blocks_of(lists, "input", self._size))
        for i, one in enumerate(blocks):
            given_as.check_type(one, output, i)
        given_as.check_size(blocks[self._rank], output, self._rank)
        dense = dense_of(output)
        flat = gather_bytes(blocks)
        counts = size_array([bytes_of(one) for one in blocks])
        arguments = (flat.data_ptr(), counts, None, dense.data_ptr(), bytes_of(dense), DType.UINT8, opts.rootRank)
        return self._start("scatterv", arguments, [output], (flat, dense), opts, _copies(dense, [output]))

    def _reduce_scatter_flat(self, output: torch.Tensor, send: torch.Tensor, opts: Any) -> Work:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        given_as.check_scattered(output, send, self._size)
        dense, given = dense_of(output), dense_of(send)
        elements, dtype, op, prescale = reduction(given, opts.reduceOp)
        count = dense.numel() * (2 if dense.is_complex() else 1)
        arguments = (elements.data_ptr(), dense.data_ptr(), count, dtype, op)
        return self._start("reduce_scatter", arguments, [output], (given, dense), opts, _copies(dense, [output]), prescale)

    @recorded("reduce_scatter_tensor", 1)
    def _reduce_scatter_base(self, output: torch.Tensor, send: torch.Tensor, opts: Any = None) -> Work:
        return self._reduce_scatter_flat(output, send, opts)

    reduce_scatter_single = _reduce_scatter_base

    @recorded("reduce_scatter_tensor", 1)
    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        return self._all([self._reduce_scatter_flat(output, send, opts) for output, send in zip(outputs, inputs)], list(outputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @recorded("reduce_scatter", 1)
    @forms("ReduceScatterOptions", 2, "op", "timeout")
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        output, blocks = one_of(in_list(outputs), "output tensor list"), list(given_as.blocks_of(in_lists(inputs), "input", self._size))
        for i, one in enumerate(blocks):
            given_as.check_type(one, output, i)
        flat = torch.cat([dense_of(one).reshape(-1) for one in blocks])
        elements, dtype, op, prescale = reduction(flat, opts.reduceOp)
        parts = 2 if flat.is_complex() else 1
        dense = dense_of(output)
        if dense.numel() != blocks[self._rank].numel():
            refuse(f"invalid tensor size: the output has {dense.numel()} elements, and the input for this rank {blocks[self._rank].numel()}")
        arguments = (elements.data_ptr(), dense.data_ptr(), size_array([one.numel() * parts for one in blocks]), dtype, op)
        return self._start("reduce_scatterv", arguments, [output], (flat, dense), opts, _copies(dense, [output]), prescale)

    @recorded("all_to_all", 1)
    @forms("AllToAllOptions", 4, "timeout")
    def alltoall_base(self, output: torch.Tensor, send: torch.Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any) -> Work:
        given_as.check_type(send, output)
        dense, given = dense_of(output), dense_of(send)
        there, here = (given_as.splits_of("input", given, input_splits, self._size), given_as.splits_of("output", dense, output_splits, self._size))
        arguments = (given.data_ptr(), size_array(there), None, dense.data_ptr(), size_array(here), None, DType.UINT8)
        return self._start("alltoallv", arguments, [output], (given, dense), opts, _copies(dense, [output]))

    all_to_all_single = alltoall_base

    @recorded("all_to_all", 1)
    @forms("AllToAllOptions", 2, "timeout")
    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any) -> Work:
        blocks = list(given_as.blocks_of([outputs], "output", self._size))
        for i, one in enumerate((*blocks, *given_as.blocks_of([inputs], "input", self._size))):
            given_as.check_type(one, blocks[0], i)
        given = gather_bytes(inputs)
        here = [bytes_of(checked(one)) for one in blocks]
        flat = torch.empty(sum(here), dtype=torch.uint8, device="cpu")
        there = size_array([bytes_of(one) for one in inputs])
        arguments = (given.data_ptr(), there, None, flat.data_ptr(), size_array(here), None, DType.UINT8)
        return self._start("alltoallv", arguments, blocks, (given, flat), opts, lambda: scatter_bytes(flat, blocks))

    @recorded("barrier")
    @forms("BarrierOptions", 0, "timeout")
    def barrier(self, opts: Any) -> Work:
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
        return self._start("recv", (dense.data_ptr(), bytes_of(dense), DType.UINT8, source, checked_tag(tag)), [tensor], dense,
                           finish=_copies(dense, [tensor]), source=c.c_int(source))

    @recorded("recvAnySource", 0)
    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Work:
        tensor = one_of(tensors)
        dense = dense_of(tensor)
        source = c.c_int(-1)
        return self._start("recv_any", (dense.data_ptr(), bytes_of(dense), DType.UINT8, c.byref(source), checked_tag(tag)), [tensor], dense,
                           finish=_copies(dense, [tensor]), source=source)
