"""What torch's profilers show of the back end aiacc of torch.distributed. A part of torch_distributed.py, which runs these checks with its
own, and is the program to start."""
import torch
import torch.distributed as dist


def check_profilers():
    """They show each operation once, from its start to its end, as asynchronous, and one that fails to start, too."""
    size = dist.get_world_size()
    tensor, gathered = torch.ones(3, 2), [torch.zeros(4) for _ in range(size)]
    long = torch.ones(2 << 20)
    profilers = [torch.autograd.profiler.profile(record_shapes=True), torch.profiler.profile(record_shapes=True)]
    for profiler in profilers:
        with profiler:
            works = [dist.all_reduce(tensor, async_op=True), dist.all_gather(gathered, torch.ones(4), async_op=True),
                     dist.all_reduce(long, async_op=True)]
            for work in works:
                work.wait()
            dist.broadcast(tensor, 0)
            try:
                dist.distributed_c10d._get_default_group().broadcast(tensor, root=size)
                raise AssertionError("a rank that does not exist was taken as root")
            except RuntimeError:
                pass
        events = profiler.function_events if hasattr(profiler, "function_events") else profiler.events()
        found = sorted((one.name, one.input_shapes, one.is_async) for one in events if one.name.startswith("aiacc:"))
        assert found == [("aiacc:all_gather", [[4]], True), ("aiacc:all_reduce", [[3, 2]], True), ("aiacc:all_reduce", [[2 << 20]], True),
                         *[("aiacc:broadcast", [[3, 2]], True)] * 2], found


def check_profilers_that_stop_before_an_operation_ends():
    """They show it until they stop, and those that run when it ends do not. torch frees what they recorded when they stop."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    for make in (torch.autograd.profiler.profile, torch.profiler.profile) * 3:
        received = torch.zeros(2)
        profiler, second = make(), make()
        with profiler:
            work = dist.irecv(received, left)
            dropped = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(20)]
            ended = dist.all_reduce(torch.ones(3), async_op=True)
            ended.wait()
        del dropped
        dist.barrier()
        with second:
            torch.zeros(1000).sum()
            sent = dist.isend(torch.full((2,), float(rank)), right)
            work.wait()
            sent.wait()
        assert torch.equal(received, torch.full((2,), float(left)))
        for each, wanted in ((profiler, ["aiacc:all_reduce"] * 21 + ["aiacc:recv"]), (second, ["aiacc:send"])):
            events = each.function_events if hasattr(each, "function_events") else each.events()
            assert sorted(one.name for one in events if one.name.startswith("aiacc:") and one.is_async) == wanted, (events, wanted)


def check_profilers_in_steps():
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda _: None) as profiler:
        works = []
        for _ in range(6):
            works.append(dist.all_reduce(torch.ones(1 << 18), async_op=True))
            profiler.step()
        for work in works:
            work.wait()
    assert profiler.step_num == 6


def check_profilers_of_a_torch_without_their_calls():
    """Each operation runs, and none is shown."""
    from aiacc.torch import _profile
    found, _profile._of_torch = _profile._of_torch, lambda: None
    try:
        with torch.autograd.profiler.profile() as profiler:
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((3,), float(dist.get_world_size())))
        assert not [one for one in profiler.function_events if one.name.startswith("aiacc:")]
    finally:
        _profile._of_torch = found
