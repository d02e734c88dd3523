"""Starting operations on a process set, and what is checked before."""
from __future__ import annotations

import pickle
import warnings
from typing import Any, Callable, List, Optional, Sequence, Tuple

from aiacc._arguments import count, refused, several, whole
from aiacc._horovod import basics, handles, operations
from aiacc._horovod.channel import Operation
from aiacc._horovod.operations import Average, Sum, checked_op
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.errors import InvalidArgument

try:  # pickles lambdas and local classes too
    import cloudpickle as _pickler  # type: ignore[import-not-found]
except ImportError:
    _pickler = pickle  # type: ignore[assignment]


def handle_average_backwards_compatibility(op: Optional[int], average: Optional[bool]) -> int:
    if average is not None and not isinstance(average, int) and type(average).__name__ not in ("bool", "bool_"):  # the last of numpy
        raise refused("average", average, "True or False; it is deprecated: use op=Average or op=Sum")
    if op is not None:
        if average is not None:
            raise ValueError("op and average are given: leave out average, which is deprecated")
        return checked_op(op)
    if average is not None:
        warnings.warn("average is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=4)
        return Average if average else Sum
    return Average


def begin(process_set: ProcessSet, operation: Operation, finish: Callable[[Any], Any]) -> handles.Pending:
    basics._known()
    channel = checked_set(process_set)._channel()
    operation.check_ranks(process_set.size())
    key = (process_set.process_set_id, operation.kind, operation.name) if operation.name else None
    handles.take_name(key)
    return handles.Pending(channel, operation, finish, key)


def start(process_set: ProcessSet, operation: Operation, finish: Callable[[Any], Any]) -> int:
    pending = begin(process_set, operation, finish)
    try:
        pending.channel.start(operation)
    except BaseException:
        handles.give_back_name(pending.key)
        raise
    return handles.add(pending)


def run(process_set: ProcessSet, operation: Operation, finish: Callable[[Any], Any]) -> Any:
    pending = begin(process_set, operation, finish)
    try:
        return finish(pending.channel.run(operation))
    finally:
        handles.give_back_name(pending.key)


def root_in_set(root_rank: int, process_set: ProcessSet) -> Tuple[int, int]:
    """The root's number in the job and in the set."""
    ranks = checked_set(process_set)._registered()
    root_rank = whole("root_rank", root_rank)
    if root_rank not in ranks:
        raise ValueError(f"root_rank is {root_rank}: it is a rank of the job, and one of {process_set}")
    return root_rank, ranks.index(root_rank)


def checked_splits(rows: int, splits: Optional[Sequence[int]], size: int) -> List[int]:
    """How many rows of an alltoall go to each rank. None: equally many. Horovod raises a RuntimeError for bad ones, aiacc one that is a ValueError too."""
    if splits is None:
        each, rest = divmod(rows, size)
        if rest:
            raise InvalidArgument(f"alltoall of {rows} rows to {size} ranks: they do not divide equally; splits says how many each gets")
        return [each] * size
    found = [count("a number of splits", one) for one in several("splits", splits, "a list of a number of rows for each rank")]
    if len(found) != size:
        raise InvalidArgument(f"splits has {len(found)} numbers for {size} ranks")
    if min(found) < 0 or sum(found) > rows:
        raise InvalidArgument(f"splits is {found}: numbers of rows from 0, of {rows} in all")
    return found


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """The root's object (pickled), on every rank."""
    root_rank, root = root_in_set(root_rank, process_set)
    is_root = basics.rank() == root_rank
    data = _pickler.dumps(obj) if is_root else b""
    got = run(process_set, operations.BroadcastBytes(name, data, root_rank, root), lambda output: output)
    return obj if is_root else pickle.loads(got)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Any]:
    """The objects (pickled) of all ranks, in their order."""
    gathered = run(process_set, operations.AllgatherBytes(name, _pickler.dumps(obj)), lambda output: output)
    return [pickle.loads(one) for one in gathered]
