"""monitored_barrier, in the words in which Gloo's reports ranks that do not come."""
from __future__ import annotations

import ctypes as c
import re
from datetime import timedelta
from typing import List, Union

import aiacc
from aiacc import _abi
from aiacc._library import library
from aiacc.requests import Request
from aiacc.torch.work import failure


def _missing(sentence: str) -> List[int]:
    """The ranks that did not come: they are elsewhere, or have not come as far as to make the group."""
    found = re.search(r"ranks? ([\d, ]+) ha(?:s|ve) (?:not arrived|not made this group|freed it)", sentence)
    return [int(one) for one in found.group(1).split(",")] if found else []


def monitored_barrier(group: aiacc.Group, rank: int, timeout: Union[None, float, timedelta], wait_all_ranks: bool) -> None:
    """Raises on every rank if one does not come. `timeout` None: the group's."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    attr = _abi.Attr(size=c.sizeof(_abi.Attr), timeout_ms=0 if seconds is None else max(1, int(seconds * 1000)))
    try:
        request = _abi.Handle()
        library().aiacc_barrier(group.handle, c.byref(attr), c.byref(request))
        Request(request.value, None).wait()
    except aiacc.Error as error:
        raise failure(_worded(error, rank, seconds, wait_all_ranks)) from None


def _worded(error: aiacc.Error, rank: int, seconds: Union[None, float], wait_all_ranks: bool) -> aiacc.Error:
    missing = _missing(str(error))
    if rank != 0:
        text = f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0"
    elif seconds is not None and seconds <= 0:
        text = f"Rank {rank} timed out in monitoredBarrier"
    elif not missing:
        return error
    elif wait_all_ranks and len(missing) > 1:
        text = f"Ranks {', '.join(map(str, missing))} failed to pass monitoredBarrier"
    else:
        text = f"Rank {missing[0]} failed to pass monitoredBarrier"
    made = type(error)(f"{text}: {error}")
    made.status, made.rank = error.status, error.rank
    return made
