"""Functions of torch.distributed that look at the back end themselves, and know Gloo and NCCL only: for groups of aiacc they do what they
do for these."""
from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any, Dict, Optional, Sequence

import torch
import torch.distributed as dist

from aiacc.torch.process_group import AiaccProcessGroup

_SPLITS_IN_ORDER = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)  # earlier ones sort the ranks


def _own(group: Any) -> Optional[AiaccProcessGroup]:
    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    return chosen if isinstance(chosen, AiaccProcessGroup) else None


def _monitored_barrier(original: Any, group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
    """torch's refuses every back end but Gloo, before it asks the group."""
    own = _own(group)
    if own is None:
        return original(group, timeout, wait_all_ranks)
    return own.monitored_barrier(timeout, wait_all_ranks)


def _set_pg_timeout(original: Any, timeout: timedelta, group: Any = None) -> None:
    """torch's warns that it knows Gloo and NCCL only, and does nothing."""
    own = _own(group)
    if own is None:
        return original(timeout, group)
    own.set_timeout(timeout)


def _split_group(original: Any, parent_pg: Any = None, split_ranks: Optional[Sequence[Sequence[int]]] = None, timeout: Optional[timedelta] = None,
                 pg_options: Any = None, group_desc: Optional[str] = None, **more: Any) -> Any:
    """torch's asks for an accelerator before it asks the group: it raises without a device of the default group, which init_process_group
    takes as device_id, and, with one of the CPU, as no accelerator is available. Newer ones ask for a back end that can split."""
    parent = _own(parent_pg)
    if parent is None:
        return original(parent_pg, split_ranks, timeout, pg_options, group_desc, **more)
    name = str(dist.get_backend(parent)).lower().removeprefix("cpu:")  # with --provide gloo that is gloo, or "undefined" where none was named
    if str(more.get("backend") or name).lower().removeprefix("cpu:") not in (name, "aiacc", "gloo" if name == "undefined" else name):
        raise ValueError(f"Requested backend '{more['backend']}' is not present in the parent process group, which is {name}'s")
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    members = dist.get_process_group_ranks(parent)
    for group in split_ranks:
        if not group:
            raise ValueError("the split group cannot be empty")
        if len(group) != len(set(group)):
            raise ValueError("the split group cannot have duplicate ranks")
        if min(group) < 0 or max(group) >= len(members):
            raise ValueError(f"split_ranks has {list(group)}: they are ranks of the parent group, from 0 to {len(members) - 1}")
    mine = next((group for group in split_ranks if parent.rank() in group), None)
    if mine is None:
        c10d: Any = dist.distributed_c10d
        c10d._process_group_name(split_ranks[0], use_hashed_name=True)  # torch >= 2.14 counts the groups, and names of later ones tell the number
        return dist.GroupMember.NON_GROUP_MEMBER if _SPLITS_IN_ORDER else None
    keywords = {"sort_ranks": False} if _SPLITS_IN_ORDER else {}
    new_group: Any = dist.new_group  # torch 1 has fewer arguments
    return new_group([members[rank] for rank in mine], timeout=timeout, backend=dist.get_backend(parent), pg_options=pg_options,
                     use_local_synchronization=True, group_desc=group_desc, **keywords)


def _attach_flight_recorder(original: Any, group: Any, *more: Any, **keywords: Any) -> None:
    """torch's (2.15) asks any group that knows devices for a back end in C++, and no group could be made. It leaves out Gloo's and NCCL's."""
    if _own(group) is None:
        original(group, *more, **keywords)


_OURS: Dict[str, Any] = {"monitored_barrier": _monitored_barrier, "split_group": _split_group, "_set_pg_timeout": _set_pg_timeout,
                         "_maybe_attach_flight_recorder": _attach_flight_recorder}


def let_in() -> None:
    """Does nothing the second time, and leaves out what this version of torch lacks."""
    for name, ours in _OURS.items():
        original = getattr(dist.distributed_c10d, name, None)
        if original is None or getattr(original, "knows_aiacc", False):
            continue
        replaced = functools.wraps(original)(functools.partial(ours, original))
        replaced.knows_aiacc = True  # type: ignore[attr-defined]
        for module in (dist, dist.distributed_c10d):
            if hasattr(module, name):
                setattr(module, name, replaced)
