"""A rank that has no more data."""
from __future__ import annotations

import gc
import threading
from typing import Any, Callable, List

from aiacc._horovod import calls
from aiacc._horovod.channel import Join
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.process_sets import global_process_set


def join(operation: Join, tasks: List[Callable[[], Any]], begun: int) -> int:
    """Takes part in the others' operations until all have joined: `operation` in those of the channel, and each of `tasks` in those of an
    engine, beside it, as others may be in any of them. `begun`: how many reductions on engines this rank has begun. The rank that joined last."""
    gc.collect()  # an optimizer that was dropped before its first step may be there still, on some ranks: these would wait for the others in it
    operation.own_number, global_process_set._begun_at_join = begun - global_process_set._begun_at_join, begun
    failures: List[BaseException] = []

    def run(task: Callable[[], Any]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001: raised below
            failures.append(error)
    threads = [threading.Thread(target=run, args=(task,), name="aiacc join", daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    last: int = calls.run(global_process_set, operation, lambda output: output)
    for thread in threads:
        thread.join()
    if failures:
        raise HorovodInternalError(f"join: {failures[0]}") from failures[0]
    return last
