"""A call that blocks on some ranks meets one that others started asynchronously under the same name; and ranks that have started what
never meets hear of it, all of them."""
import hang_report

hang_report.after(250)

import gc
import random
import sys
import threading
import time
import weakref

import torch

import aiacc.torch as hvd
from aiacc._horovod import named, named_table
from torch_checks import close, equal, raises, run

Internal = hvd.HorovodInternalError


def pairs(process_set):
    """By kind: (the call that blocks, the one that does not, the result), each of a name."""
    n, mine = process_set.size(), process_set.rank()
    root = process_set.ranks[-1]
    ones, rows, several = torch.ones(3), torch.full((mine + 1, 2), float(mine)), [torch.full((2,), float(mine)), torch.ones(1).double()]
    gathered = torch.cat([torch.full((one + 1, 2), float(one)) for one in range(n)])
    common = {"process_set": process_set}

    def in_place(call):
        return lambda name: call(torch.ones(3), name=name, op=hvd.Sum, **common)
    return {
        "sum": (lambda name: hvd.allreduce(ones, name=name, op=hvd.Sum, **common),
                lambda name: hvd.allreduce_async(ones, name=name, op=hvd.Sum, **common), torch.full((3,), float(n))),
        "sum in place": (in_place(hvd.allreduce_), in_place(hvd.allreduce_async_), torch.full((3,), float(n))),
        "mean": (lambda name: hvd.allreduce(ones * mine, name=name, prescale_factor=2.0, **common),
                 lambda name: hvd.allreduce_async(ones * mine, name=name, prescale_factor=2.0, **common), torch.full((3,), n - 1.0)),
        "most": (lambda name: hvd.allreduce(torch.tensor([mine]), name=name, op=hvd.Max, **common),
                 lambda name: hvd.allreduce_async(torch.tensor([mine]), name=name, op=hvd.Max, **common), torch.tensor([n - 1])),
        "adasum": (lambda name: hvd.allreduce(ones, name=name, op=hvd.Adasum, **common),
                   lambda name: hvd.allreduce_async(ones, name=name, op=hvd.Adasum, **common), ones),
        "group": (lambda name: hvd.grouped_allreduce(several, name=name, op=hvd.Sum, **common),
                  lambda name: hvd.grouped_allreduce_async(several, name=name, op=hvd.Sum, **common),
                  [torch.full((2,), n * (n - 1) / 2), torch.full((1,), float(n)).double()]),
        "rows": (lambda name: hvd.allgather(rows, name=name, **common), lambda name: hvd.allgather_async(rows, name=name, **common), gathered),
        "groups of rows": (lambda name: hvd.grouped_allgather([rows, rows], name=name, **common),
                           lambda name: hvd.grouped_allgather_async([rows, rows], name=name, **common), [gathered, gathered]),
        "root": (lambda name: hvd.broadcast(ones * mine, root, name=name, **common),
                 lambda name: hvd.broadcast_async(ones * mine, root, name=name, **common), torch.full((3,), n - 1.0)),
        "swap": (lambda name: hvd.alltoall(torch.full((n,), mine), [1] * n, name=name, **common),
                 lambda name: hvd.alltoall_async(torch.full((n,), mine), [1] * n, name=name, **common),
                 [torch.arange(n), torch.ones(n, dtype=torch.int32)]),
        "part": (lambda name: hvd.reducescatter(torch.ones(n, 2), name=name, op=hvd.Sum, **common),
                 lambda name: hvd.reducescatter_async(torch.ones(n, 2), name=name, op=hvd.Sum, **common), torch.full((1, 2), float(n))),
    }


def compare(result, expected):
    for one, other in zip(result, expected) if isinstance(expected, list) else [(result, expected)]:
        close(one, other)


def check_each_kind_on_all_ranks_and_on_some():
    """Each rank blocks for some of them, and starts the others in an order of its own before it waits for any."""
    sets = [hvd.global_process_set]
    if hvd.size() > 2:
        halves = [hvd.add_process_set(list(range(first, hvd.size(), 2))) for first in (0, 1)]
        sets.append(next(one for one in halves if one.included()))
    for process_set in sets:
        kinds = pairs(process_set)
        for blocks in range(process_set.size()):
            handles = {}
            if process_set.rank() == blocks:
                for kind, (run_it, _, expected) in kinds.items():
                    compare(run_it(f"{kind} {blocks}"), expected)
                continue
            for number in torch.randperm(len(kinds), generator=torch.Generator().manual_seed(hvd.rank())).tolist():
                kind = list(kinds)[number]
                handles[kind] = kinds[kind][1](f"{kind} {blocks}")
            for kind, handle in reversed(handles.items()):
                compare(hvd.synchronize(handle), kinds[kind][2])


def check_those_that_others_start_behind_a_barrier():
    """What blocks has been started, so it ends while the others are already in something else, or only poll."""
    n, rank = hvd.size(), hvd.rank()
    handle = hvd.allreduce_async(torch.ones(2), name="before", op=hvd.Sum) if rank else None
    if rank:
        hvd.barrier()
        while not hvd.poll(handle):
            pass
        equal(hvd.synchronize(handle), torch.full((2,), float(n)))
    else:
        equal(hvd.allreduce(torch.ones(2), name="before", op=hvd.Sum), torch.full((2,), float(n)))
        hvd.barrier()


def check_gradients_of_a_named_one():
    x = torch.ones(2, requires_grad=True)
    (hvd.allreduce(x, name="with a gradient", op=hvd.Sum) * (hvd.rank() + 1)).sum().backward()
    equal(x.grad, torch.full((2,), float(sum(range(hvd.size() + 1)))))


def check_ranks_that_ask_all_the_time():
    """With no patience at all nothing that will end is taken for what never meets."""
    n, rank = hvd.size(), hvd.rank()
    before, named.PATIENCE_S, named._TICK_S = (named.PATIENCE_S, named._TICK_S), 0.0, 0.0002
    together, alone = random.Random(1), random.Random(rank)
    try:
        for step in range(80):
            handle, name = None, f"asked {step % 5}"
            if alone.random() < 0.1:
                time.sleep(alone.random() * 0.01)
            if together.random() < 0.7:
                if alone.random() < 0.5:
                    handle = hvd.allreduce_async(torch.ones(2), name=name, op=hvd.Sum)
                else:
                    equal(hvd.allreduce(torch.ones(2), name=name, op=hvd.Sum), torch.full((2,), float(n)))
            if together.random() < 0.5:
                equal(hvd.allgather(torch.ones(1)), torch.ones(n))
            if together.random() < 0.2:
                hvd.barrier()
            if handle is not None:
                equal(hvd.synchronize(handle), torch.full((2,), float(n)))
    finally:
        named.PATIENCE_S, named._TICK_S = before


def check_join_beside_named_ones():
    n, rank = hvd.size(), hvd.rank()
    for step in range(2):
        for number in range(step + rank):
            equal(hvd.allreduce(torch.ones(2), name="joined", op=hvd.Sum), torch.full((2,), float(n - max(0, number + 1 - step))))
        assert hvd.join() == n - 1
    text = raises(Internal, hvd.allreduce, torch.ones(2), name=f"of {rank}")  # calls are counted alike again
    assert "its name is of 0 on rank 0" in text, text
    equal(hvd.allreduce(torch.ones(2), name="joined", op=hvd.Sum), torch.full((2,), float(n)))


def check_join_with_what_nobody_has_waited_for():
    for step in range(4):
        names = ["a", "b"][:1 + (hvd.rank() + step) % 2] if step else ["a", "b"]  # in some steps a rank has not started all of them
        handles = {name: hvd.allreduce_async(torch.ones(2), name=f"outstanding {name}", op=hvd.Sum) for name in names}
        hvd.join()
        for name, handle in handles.items():
            started = sum(hvd.allgather_object(name in names))
            equal(hvd.synchronize(handle), torch.full((2,), float(started)))
        if "b" not in names:
            hvd.allgather_object(False)


def check_what_never_meets():
    """All raise, and all goes on afterwards, also allreduces of the same names."""
    n, rank = hvd.size(), hvd.rank()
    ones, last = torch.ones(2), rank == n - 1
    cases = [
        # Waited for on all ranks; of another shape since the call before; started asynchronously.
        (lambda: hvd.allreduce(ones, name=f"of {rank}"), "its name is of 0 on rank 0 and of 1 on rank 1"),
        (lambda: hvd.synchronize(hvd.allreduce_async(torch.ones(3) if last else ones, name="again", op=hvd.Sum)),
         f"its type and shape is ['torch.float32', 2] on rank 0 and ['torch.float32', 3] on rank {n - 1}"),
        (lambda: hvd.barrier() if last else hvd.allreduce(ones, name="again"), f"its operation is allreduce on rank 0 and barrier on rank {n - 1}"),
        (lambda: hvd.grouped_allreduce([ones], name="again") if last else hvd.allreduce(ones, name="again"),
         f"it is grouped, or reduces by Adasum, on rank {n - 1} and not on rank 0"),
        (lambda: hvd.allreduce(ones, name="again", op=hvd.Adasum) if rank == 0 else hvd.allreduce(ones, name="again"),
         "it is grouped, or reduces by Adasum, on rank 0 and not on rank 1"),
        (lambda: hvd.allreduce(ones) if last else hvd.allreduce(ones, name="again"), f"its name is again on rank 0 and None on rank {n - 1}"),
    ]
    equal(hvd.allreduce(ones, name="again", op=hvd.Sum), ones * n)
    for call, sentence in cases:
        aside = hvd.allreduce_async(ones, name=f"aside {rank}")  # never met, and given up
        text = raises(Internal, call)
        assert "ranks disagree about allreduce" in text and sentence in text, text
        raises(Internal, hvd.synchronize, aside)
        equal(hvd.allreduce(ones, name="again", op=hvd.Sum), ones * n)
        equal(hvd.allgather(torch.ones(1)), torch.ones(n))


def check_late_ranks_are_waited_for():
    """Longer than a program's patience: those that wait have asked, and what they have asked stays behind."""
    n, rank = hvd.size(), hvd.rank()
    for step in range(2):
        if rank == step:  # what the others wait for has not ended when it waits for something else, for which they have not asked
            time.sleep(1.6)
            handle = hvd.allreduce_async(torch.ones(2 + step), name="late", op=hvd.Sum)
            equal(hvd.allgather(torch.ones(2), name="later"), torch.ones(2 * n))
            equal(hvd.synchronize(handle), torch.full((2 + step,), float(n)))
        else:
            equal(hvd.allreduce(torch.ones(2 + step), name="late", op=hvd.Sum), torch.full((2 + step,), float(n)))
            equal(hvd.allgather(torch.ones(2), name="later"), torch.ones(2 * n))
        equal(hvd.allreduce(torch.ones(3), name="late", op=hvd.Sum), torch.full((3,), float(n)))
        equal(hvd.allgather(torch.ones(1), name="late"), torch.ones(n))
    # Each rank waits for what the one before has started and does not wait for.
    handles = {name: hvd.allreduce_async(torch.ones(1), name=name, op=hvd.Sum) for name in ("x", "y") if rank or name == "x"}
    if rank == 0:
        time.sleep(1.6)
        handles["y"] = hvd.allreduce_async(torch.ones(1), name="y", op=hvd.Sum)
    for name in sorted(handles, reverse=rank % 2 == 0):
        equal(hvd.synchronize(handles[name]), torch.full((1,), float(n)))


def check_new_names_at_each_step():
    """Started in different orders, with others outstanding, and ranks that join meanwhile. Engines are replaced, and have few tensors."""
    n, rank = hvd.size(), hvd.rank()
    before, named_table._MOST_TENSORS = named_table._MOST_TENSORS, 8
    try:
        hvd.shutdown()
        hvd.init()
        allreduces = hvd.global_process_set._named(hvd.mpi_ops._tensors)
        together, alone = random.Random(2), random.Random(rank)
        handles, most, started = {}, 0, 0
        for step in range(120):
            names = [f"loss.{step}.{number}" for number in range(together.randrange(1, 6))] + ["of each step"] * (step % 3 == 0)
            for name in alone.sample(names, len(names)):
                if alone.random() < 0.3 and name in names[:1]:  # the first one may block
                    for other in names:
                        if other not in handles and other != name:
                            handles[other] = hvd.allreduce_async(torch.full((2,), float(step)), name=other, op=hvd.Sum)
                    equal(hvd.allreduce(torch.full((2,), float(step)), name=name, op=hvd.Sum), torch.full((2,), float(step * n)))
                elif name not in handles:
                    handles[name] = hvd.allreduce_async(torch.full((2,), float(step)), name=name, op=hvd.Sum)
            started += len(names)
            for name in list(handles):
                if alone.random() < 0.5 or name == "of each step":
                    of = step if name == "of each step" else int(name.split(".")[1])
                    equal(hvd.synchronize(handles.pop(name)), torch.full((2,), float(of * n)))
            most = max(most, allreduces._present()._added)
            if step % 40 == 39:
                for number in range(rank):  # ranks with fewer have joined
                    hvd.allreduce(torch.ones(1), name=f"last.{step}.{number}")
                for handle in handles.values():
                    hvd.synchronize(handle)
                handles = {}
                assert hvd.join() == n - 1
        assert started > 300 and most < started / 2 and allreduces._epoch > 10, (started, most, allreduces._epoch)
    finally:
        named_table._MOST_TENSORS = before


def check_names_that_come_back():
    """Engines have more tensors where the program needs them: they are not replaced for ever."""
    before, named_table._MOST_TENSORS = named_table._MOST_TENSORS, 8
    try:
        hvd.shutdown()
        hvd.init()
        allreduces = hvd.global_process_set._named(hvd.mpi_ops._tensors)
        for step in range(12):
            if step == 6:
                epoch = allreduces._epoch
            handles = [hvd.allreduce_async(torch.ones(1), name=f"layer.{number}", op=hvd.Sum) for number in range(20)]
            for handle in handles:
                equal(hvd.synchronize(handle), torch.full((1,), float(hvd.size())))
        assert allreduces._epoch == epoch > 0, (allreduces._epoch, epoch)
    finally:
        named_table._MOST_TENSORS = before


def check_engines_are_replaced_after_an_error():
    """Also where it came between what one rank and what the others wanted to replace."""
    before, named_table._MOST_TENSORS = named_table._MOST_TENSORS, 4
    try:
        hvd.shutdown()
        hvd.init()
        if hvd.rank() == 0:  # whose engine is full
            handles = [hvd.allreduce_async(torch.ones(1), name=f"alone.{number}") for number in range(6)]
            for handle in handles:
                raises(hvd.HorovodInternalError, hvd.synchronize, handle)
        else:
            raises(hvd.HorovodInternalError, hvd.barrier)
        if hvd.rank() == 0:
            time.sleep(0.5)  # the others' new engines are full before this rank has one
        for step in range(3):
            handles = [hvd.allreduce_async(torch.ones(1), name=f"again.{step}.{number}", op=hvd.Sum) for number in range(6)]
            for handle in handles:
                equal(hvd.synchronize(handle), torch.full((1,), float(hvd.size())))
        hvd.barrier()
    finally:
        named_table._MOST_TENSORS = before


def check_results_are_the_callers():
    """Nothing keeps what was synchronized."""
    kept = []
    for _ in range(3):
        result = hvd.synchronize(hvd.allreduce_async(torch.ones(4), name="result"))
        kept.append(weakref.ref(result))
        del result
    gc.collect()
    assert not any(each() is not None for each in kept)


def check_threads_beside_slow_ones():
    """On each rank one thread waits, and what it waits for another rank's other thread starts later: nobody is told that ranks disagree."""
    n, rank = hvd.size(), hvd.rank()
    for kind, calls in {"allreduce": lambda name: hvd.allreduce(torch.ones(1), name=name, op=hvd.Sum),
                        "allgather": lambda name: hvd.allgather(torch.ones(1), name=name)}.items():
        failures = []

        def work(first, pause):
            try:
                calls(f"{kind} first of {first}")
                time.sleep(pause)
                calls(f"{kind} second of {first}")
            except Exception as error:  # noqa: BLE001
                failures.append(error)
        threads = [threading.Thread(target=work, args=(number, 2.5 if (rank + number) % 2 else 0)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures


def check_ranks_that_disagree_beside_one_that_has_joined():
    """The others raise, and go on; the joined one still has zeros for them."""
    n, rank = hvd.size(), hvd.rank()
    if n < 3:
        return
    ones = torch.ones(2)
    equal(hvd.allreduce(ones, name="of all", op=hvd.Sum), ones * n)
    if rank < n - 1:
        for call in (lambda: hvd.allreduce(torch.ones(2 + (rank == 1)), name="new"), lambda: hvd.allreduce(torch.ones(2 + (rank == 1)), name="of all"),
                     lambda: hvd.allreduce(ones.double() if rank else ones, name="new too"), lambda: hvd.allreduce(ones, name=f"of {rank}"),
                     lambda: hvd.allreduce(torch.ones(2 + (rank == 1)))):
            began = time.monotonic()
            raises(Internal, call)
            assert time.monotonic() - began < 20
            equal(hvd.allreduce(ones, name="of all", op=hvd.Sum), ones * (n - 1))
    hvd.join()
    equal(hvd.allreduce(ones, name="of all", op=hvd.Sum), ones * n)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
