"""Bad input and ranks that end too early: Horovod's exceptions, and no hang."""
import pytest

from python_support import check_job, each_torch, each_torch_with, python_job

QUIET = {"AIACC_LOG": "error"}


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 3))
def test_faults(python, ranks):
    check_job(python, ranks, "torch_faults.py", env=QUIET)


@pytest.mark.parametrize("python", each_torch())
def test_a_rank_that_raises_in_backward_ends_the_job(python):
    program = """
import torch, aiacc.torch as hvd
hvd.init()
class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        if hvd.rank() == 1 and step == 2: raise ValueError("in the middle")
        return g
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(4):
    optimizer.zero_grad()
    model[1](Raises.apply(model[0](torch.ones(2, 3)))).sum().backward()
    optimizer.step()
"""
    code, _, err = python_job(python, 3, program, env=QUIET)
    assert code == 1 and "ValueError: in the middle" in err


@pytest.mark.parametrize("python", each_torch()[:1])
def test_a_lost_rank_is_horovods_exception_on_the_others(python):
    """The others have a moment until aiaccrun ends them: the sentence stands in the exception."""
    program = """
import os, signal, sys, torch, aiacc.torch as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
hvd.barrier()
if hvd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)
try: hvd.allreduce(torch.ones(1), name="the sum")
except hvd.HorovodInternalError as error: print(error)
"""
    code, out, _ = python_job(python, 2, program, env=QUIET)
    assert code == 137 and "allreduce 'the sum': " in out and "rank 1" in out, (code, out)


@pytest.mark.parametrize("python", each_torch())
def test_a_rank_lost_before_updates_that_are_to_come(python):
    """The forward pass raises where it waits for them, and what has been waited for once is not waited for again."""
    program = """
import os, signal, torch, aiacc.torch as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
net = torch.nn.Linear(3, 3)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), overlap_forward=net)
for step in range(4):
    loss = net(torch.ones(2, 3)).sum()
    if hvd.rank() == 1 and step == 3: os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()
try: net(torch.ones(2, 3))
except hvd.HorovodInternalError as error: print(error)
assert len(list(net.parameters())) == 2
try: hvd.allreduce(torch.ones(1))
except hvd.HorovodInternalError: print("so does what follows")
"""
    code, out, err = python_job(python, 2, program, env=QUIET)
    assert code == 137 and "reducing gradients: " in out and "rank 1" in out and "so does what follows" in out, (code, out, err)


@pytest.mark.parametrize("python", each_torch())
def test_an_elastic_job_goes_back_over_updates_that_are_to_come(python):
    """They never come, as a rank has raised before its step: whoever goes back to a commit does not wait for them."""
    program = """
import torch, aiacc.torch as hvd
hvd.init()
net = torch.nn.Linear(3, 3)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), overlap_forward=net)
raised = False
@hvd.elastic.run
def train(state):
    global raised
    for step in range(5):
        optimizer.zero_grad()
        loss = net(torch.ones(2, 3)).sum()
        if step == 3 and not raised:
            raised = True
            if hvd.rank() == 1: raise hvd.HorovodInternalError("by hand")
        loss.backward()
        optimizer.step()
        if step == 3: hvd.allgather(loss.detach().view(1), name="metric")
        if step == 1: state.commit()
    return "ends"
print(train(hvd.elastic.TorchState(model=net, optimizer=optimizer)))
"""
    code, out, err = python_job(python, 2, program, env=QUIET)
    assert (code, out) == (0, "ends\n" * 2), (code, out, err)


@pytest.mark.parametrize("more", ["delay=2", 'gossip=hvd.Gossip(nodes="ranks", delay=1, compression=hvd.Compression.fp16)'])
@pytest.mark.parametrize("python", each_torch()[:1])
def test_local_sgd_goes_on_with_another_rank(python, more, tmp_path):
    """In place of one that is killed while an average is on its way: all have the parameters, the step and the outer state of rank 0."""
    program = f"""
import os, pathlib, signal, torch, aiacc.torch as hvd
died = pathlib.Path({str(tmp_path / "died")!r})
hvd.init()
net = torch.nn.Linear(3, 3)
optimizer = hvd.LocalSGD(torch.optim.SGD(net.parameters(), lr=0.1), 4, {more},
                         outer_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9))
@hvd.elastic.run
def train(state):
    while state.step < 24:
        if state.step == 13 and hvd.rank() == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        net.weight.grad, net.bias.grad = torch.full((3, 3), 0.5 + hvd.rank()), torch.ones(3)
        optimizer.step()
        state.step += 1
        if state.step == 8:
            optimizer.average()
            state.commit()
    optimizer.average()
    outer = optimizer.outer_optimizer.state.values()
    found = [hvd.allgather(one.detach().reshape(1, -1)) for one in [net.weight, *(one["momentum_buffer"] for one in outer)]]
    return optimizer.local_step, all(bool((one == one[0]).all()) for one in found), len(found)
print(*train(hvd.elastic.TorchState(model=net, optimizer=optimizer, step=0)), flush=True)
"""
    code, out, err = python_job(python, 3, program, options=["--min-np", 2, "--max-np", 3], env=QUIET)
    assert (code, out) == (0, "24 True 3\n" * 3) and err.count("a new rank is started in its place") == 1, (code, out, err)


@pytest.mark.parametrize("what", ["hvd.allreduce(torch.ones(1), name='x')", "hvd.allgather(torch.ones(1), name='x')", "hvd.barrier()",
                                  "hvd.ShardedSoftmax(4, 10)(torch.ones(2, 4), torch.zeros(2, dtype=torch.int64))",
                                  "net(torch.ones(1, 1)).sum().backward(); optimizer.step()", "local.step()", "gossip.step()"])
@pytest.mark.parametrize("python", each_torch()[:1])
def test_a_rank_that_waits_for_one_that_has_finished_raises(python, what):
    program = f"""
import torch, aiacc.torch as hvd
import aiacc._horovod.basics as basics
basics._LEAVING_S = 0.5
hvd.init()
net = torch.nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
local = hvd.LocalSGD(torch.optim.SGD(net.parameters(), lr=0.1), 2)
gossip = hvd.LocalSGD(torch.optim.SGD(net.parameters(), lr=0.1), 100, gossip=hvd.Gossip(nodes="ranks"))
gossip.step()
if hvd.rank() == 0:
    {what}
"""
    code, _, err = python_job(python, 2, program, env=QUIET)
    sentence = "rank 1 has freed the gradient engine" if "gossip" in what else "rank 1 has shut down and takes part in no further operation"
    assert code == 1 and "HorovodInternalError: " in err and sentence in err, (code, err)


@pytest.mark.parametrize("what, exits", [("hvd.allreduce(torch.ones(1))", "sys.exit"), ("optimizer.step()", "exit")])
@pytest.mark.parametrize("python", each_torch()[:1])
def test_sys_exit_with_a_failure_ends_the_job_with_it(python, what, exits):
    program = f"""
import sys, torch, aiacc.torch as hvd
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(3):
    if hvd.rank() == 1 and step == 2: {exits}(3)
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    {what if what.startswith("opt") else "optimizer.step(); " + what}
"""
    code, _, err = python_job(python, 2, program, env=QUIET)
    assert code == 3, (code, err)


@pytest.mark.parametrize("python", each_torch()[:1])
def test_what_was_started_on_one_rank_only_ends_with_it(python):
    program = """
import torch, aiacc.torch as hvd
hvd.init()
hvd.barrier()
if hvd.rank() == 0: hvd.allreduce_async(torch.ones(1))
print("done", flush=True)
"""
    code, out, _ = python_job(python, 2, program, env=QUIET)
    assert (code, out) == (0, "done\ndone\n")


@pytest.mark.parametrize("call", ["step()", "hvd.allreduce(torch.ones(1))", "hvd.join()"])
@pytest.mark.parametrize("python", each_torch()[:1])
def test_ctrl_c_ends_a_rank_that_waits(python, call):
    """The other rank never comes."""
    program = f"""
import os, signal, threading, torch, aiacc.torch as hvd
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
def step():
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
step()
if hvd.rank() == 1:
    while True: signal.pause()
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    {call}
except KeyboardInterrupt: print("interrupted", flush=True); raise
"""
    code, out, err = python_job(python, 2, program, env=QUIET)
    assert (code, out) == (130, "interrupted\n"), (code, out, err)
