"""How ranks that have started operations in different orders agree on one (aiacc._horovod.order), without processes."""
import os
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(os.environ["AIACC_SOURCE"]) / "bindings/python"))
from aiacc._horovod import order  # noqa: E402

ON_ENGINE, NEXT_CALL = ("allreduce", "a", (0, 0, 1)), ("allreduce", "a", (0, 0, 2))
A, B, C, UNNAMED, BARRIER = ("allgather", "a"), ("allgather", "b"), ("broadcast", "a"), ("allreduce", None), ("barrier", None)


def said(*pending, waits=None):
    return order.Said(list(pending), waits)


def test_what_a_rank_says_survives_the_journey():
    for one in (said(A, UNNAMED, C), said(A, waits=0), said(("allgather", "Ä 'x'\n"), waits=0), said(ON_ENGINE, waits=0)._replace(engine=3)):
        assert order.decode(order.encode(one)) == one


def test_what_all_have_started_runs_in_the_order_of_the_first():
    assert order.common([said(A, B, C), said(C, B), said(B, A, C)]) == [B, C]
    assert order.common([said(A, BARRIER), said(BARRIER)]) == [BARRIER]
    assert order.common([said(A), said(C)]) == [], "kinds tell names apart"


def test_of_several_without_a_name_as_many_as_all_have():
    assert order.common([said(UNNAMED, A, UNNAMED, UNNAMED), said(A, UNNAMED, UNNAMED)]) == [UNNAMED, A, UNNAMED]


def test_ranks_that_all_wait_wait_forever():
    assert order.all_wait([said(A, waits=0), said(B, C, waits=1)])
    assert not order.all_wait([said(A, waits=0), said(B)])


def test_the_contradiction_names_two_ranks_that_differ():
    assert order.contradiction([(0, said(A, waits=0)), (2, said(A, waits=0)), (4, said(C, B, waits=1))]) == \
        "ranks disagree about allgather 'a': its name is a on rank 0 and b on rank 4"
    assert order.contradiction([(0, said(BARRIER, waits=0)), (1, said(UNNAMED, waits=0))]) == \
        "ranks disagree about barrier: its operation is barrier on rank 0 and allreduce on rank 1"


def test_what_is_waited_for_on_an_engine():
    assert order.waited_elsewhere([said(A, ON_ENGINE, waits=1), said(A, waits=0), said(NEXT_CALL), said()]) == [ON_ENGINE]
    assert order.common([said(ON_ENGINE), said(NEXT_CALL)]) == [], "calls tell those of one name apart"
    assert order.contradiction([(1, said(("allreduce", "a"), waits=0)), (3, said(ON_ENGINE, waits=0))]) == \
        "ranks disagree about allreduce 'a': it is grouped, or reduces by Adasum, on rank 1 and not on rank 3"
    assert order.contradiction([(0, said(ON_ENGINE, waits=0)), (1, said(BARRIER, waits=0))]) == \
        "ranks disagree about allreduce 'a': its operation is allreduce on rank 0 and barrier on rank 1"


@pytest.mark.parametrize("seed", range(200))
def test_programs_that_start_the_same_in_any_order_all_end(seed):
    """Each rank starts the operations in an order of its own, and waits for one that it has started, or goes on. Ranks run what they
    agree on. Nothing remains, nothing is declared contradictory, and all have run the same."""
    dice = random.Random(seed)
    size = dice.choice((2, 3, 5))
    operations = [("allgather", str(i)) for i in range(dice.randrange(1, 12))]
    programs = [dice.sample(operations, len(operations)) for _ in range(size)]
    queues, ran, waits = [[] for _ in range(size)], [[] for _ in range(size)], [None] * size
    for _ in range(1000):
        for rank in range(size):
            if waits[rank] not in queues[rank]:
                waits[rank] = None
            if waits[rank] is None and programs[rank] and dice.random() < 0.5:
                queues[rank].append(programs[rank].pop())
            elif waits[rank] is None and not programs[rank] and queues[rank]:  # it has started all, so it may wait for any
                waits[rank] = dice.choice(queues[rank])
        if not all(queues):
            if not any(programs) and not any(queues):
                break
            continue
        everyone = [order.Said(list(queue), queue.index(wait) if wait else None) for queue, wait in zip(queues, waits)]
        keys = order.common(everyone)
        assert keys or not order.all_wait(everyone)
        for key in keys:
            for rank in range(size):
                queues[rank].remove(key)
                ran[rank].append(key)
    assert all(one == ran[0] for one in ran) and sorted(ran[0]) == sorted(operations)
