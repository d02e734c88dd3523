"""Functions of torch.distributed that look at the back end themselves, and know Gloo and NCCL only: for groups of aiacc they do what they
do for these."""
from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any, Optional, Sequence

import torch.distributed as dist

from aiacc.torch.process_group import AiaccProcessGroup


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
    takes as device_id, and, with one of the CPU, as no accelerator is available."""
    parent = _own(parent_pg)
    if parent is None:
        return original(parent_pg, split_ranks, timeout, pg_options, group_desc, **more)
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
    mine = next((sorted(group) for group in split_ranks if parent.rank() in group), None)
    if mine is None:
        return None
    new_group: Any = dist.new_group  # torch 1 has fewer arguments
    return new_group([members[rank] for rank in mine], timeout=timeout, backend=dist.get_backend(parent), pg_options=pg_options,
                     use_local_synchronization=True, group_desc=group_desc)


def let_in() -> None:
    """Does nothing the second time, and leaves out what this version of torch lacks."""
    for name, ours in (("monitored_barrier", _monitored_barrier), ("split_group", _split_group), ("_set_pg_timeout", _set_pg_timeout)):
        original = getattr(dist.distributed_c10d, name, None)
        if original is None or getattr(original, "knows_aiacc", False):
            continue
        replaced = functools.wraps(original)(functools.partial(ours, original))
        replaced.knows_aiacc = True  # type: ignore[attr-defined]
        for module in (dist, dist.distributed_c10d):
            if hasattr(module, name):
                setattr(module, name, replaced)
