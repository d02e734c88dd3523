"""LocalSGD, beside a simulation: every rank also trains copies of all ranks' models by itself, and averages them as the papers say."""
import hang_report

hang_report.after(250)

import copy
import io
import logging
import pickle

import torch
from torch import nn

import aiacc.torch as hvd
from aiacc.torch import _averages
from local_sgd_simulation import Simulated, adam, all_equal, backward_of, nesterov, train
from rank_checks import raises
from torch_checks import close, equal, run, same, version
from torch_optimizer import batch, joined, loss_of, network, sgd


def check_steps_are_of_each_rank_and_averages_of_all():
    for make in (sgd, adam):
        for period in (1, 3):
            model, optimizer, _ = train(make, 7, period=period)
            assert optimizer.local_step == 7 and optimizer.steps_since_average == 7 % period
            optimizer.average()
            assert optimizer.steps_since_average == 0
            all_equal(model)


def check_with_a_period_of_1_sgd_is_that_of_the_joined_batch():
    model, reference = network(), network()
    optimizer, plain = hvd.LocalSGD(sgd(model.parameters()), period=1), sgd(reference.parameters())
    for step in range(6):
        for one, of, data in ((optimizer, model, batch(step, hvd.rank())), (plain, reference, joined(step))):
            one.zero_grad()
            loss_of(of, data).backward()
            one.step()
        same(model, reference)
        all_equal(model)


def check_first_steps_may_use_the_gradients_of_all():
    model, optimizer, _ = train(adam, 4, period=3, warmup_steps=4)
    all_equal(model)
    assert optimizer.steps_since_average == 5  # ranks may have begun with other parameters
    train(adam, 9, period=3, warmup_steps=4)

    model, reference = network(), network()
    optimizer, plain = hvd.LocalSGD(sgd(model.parameters()), 4, warmup_steps=10), sgd(reference.parameters())
    for step in range(3):  # by closures, and with a parameter that has no gradient on some ranks
        def closure_of(of, one, data):
            def closure():
                one.zero_grad()
                loss = loss_of(of, data)
                loss.backward()
                return loss
            return closure
        assert optimizer.step(closure_of(model, optimizer, batch(step, hvd.rank()))).item() > 0
        plain.step(closure_of(reference, plain, joined(step)))
        same(model, reference)


def check_an_outer_optimizer():
    model, _, simulated = train(sgd, 13, period=3, outer_optimizer=nesterov)
    if hvd.size() > 1:  # of one rank, there is only what it has made itself
        assert not torch.allclose(next(model.parameters()), next(train(sgd, 13, period=3)[0].parameters()), atol=1e-4)
    # A step of the whole way is the average itself.
    plain = train(adam, 9, period=3)[0]
    same(train(adam, 9, period=3, outer_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0))[0], plain)
    train(adam, 9, period=2, outer_optimizer=nesterov, warmup_steps=3)


def check_fragments_and_averages_that_arrive_later():
    for arguments in ({"fragments": 2}, {"fragments": 3}, {"delay": 1}, {"delay": 2, "fragments": 3}, {"delay": 3, "outer_optimizer": nesterov},
                      {"delay": 1, "fragments": 2, "outer_optimizer": nesterov, "warmup_steps": 3}):
        model, optimizer, _ = train(sgd, 14, period=4, **arguments)
        optimizer.average()
        all_equal(model)


def check_parameters_travel_in_pieces():
    whole, _averages._PIECE = _averages._PIECE, 20
    try:
        for arguments in ({}, {"delay": 2, "fragments": 3}, {"outer_optimizer": nesterov}):
            model = network()
            model[2].double()
            model.insert(2, Cast(torch.float64))
            model.insert(4, Cast(torch.float32))
            _, optimizer, _ = train(sgd, 9, model=model, period=4, **arguments)
            pieces = [piece for fragment in optimizer._fragments for piece in fragment.pieces]
            assert len(pieces) > 4 and sorted(i for fragment in optimizer._fragments for piece in fragment.pieces for i in piece) == \
                sorted(i for fragment in optimizer._fragments for i in range(len(fragment.tensors))), pieces
    finally:
        _averages._PIECE = whole


class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


def check_fragments_are_about_equally_large():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)), nn.Linear(8, 100))
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 8, fragments=3)
    sizes = [sum(one.numel() for one in fragment.tensors) for fragment in optimizer._fragments]
    assert sum(sizes) == sum(one.numel() for one in model.parameters()) and len(sizes) == 3 and max(sizes) == 800 + 100 + 0 or max(sizes) < 1000, sizes
    tensors = [torch.zeros(n) for n in (1000, 1, 1, 1)]
    assert [len(one.tensors) for one in hvd.LocalSGD(sgd([nn.Parameter(one) for one in tensors]), 8, fragments=4)._fragments] == [1] * 4


def check_sixteen_bits_travel_of_what_has_changed():
    """Parameters near 1000, of which 16 bits are half a unit and more, move by thousandths."""
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for arguments in ({}, {"outer_optimizer": nesterov}, {"delay": 1, "fragments": 2}):
            model = network()
            with torch.no_grad():
                model[0].bias.add_(1000)
            model, optimizer, _ = train(sgd, 9, 2e-3 if not arguments else 5e-3, model=model, period=3, compression=compression, **arguments)
            optimizer.average()
            all_equal(model)


def check_parameters_of_other_types():
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.bfloat16, 1e-2)):
        model = nn.Linear(3, 2).to(dtype)
        with torch.no_grad():
            for one in model.parameters():
                one.fill_(1)
        mixed = nn.Parameter(torch.ones(3))
        optimizer = hvd.LocalSGD(torch.optim.SGD([*model.parameters(), mixed], lr=1.0), 2)
        for step in range(2):
            for one in [*model.parameters(), mixed]:
                one.grad = torch.full_like(one, float(hvd.rank()))
            optimizer.step()
        mean = 1 - 2 * (hvd.size() - 1) / 2
        for one in [*model.parameters(), mixed]:
            close(one.detach(), torch.full_like(one, mean), tolerance)


def check_buffers_are_averaged():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with torch.no_grad():
        model[1].running_mean.fill_(hvd.rank())
        model[1].num_batches_tracked.fill_(5 + hvd.rank())
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 2, buffers=model.buffers())
    for step in range(2):
        optimizer.step()
    equal(model[1].running_mean, torch.full((4,), (hvd.size() - 1) / 2))
    assert int(model[1].num_batches_tracked) == 5 + hvd.rank()


def check_schedulers_hooks_and_groups():
    model = network()
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    before = optimizer.param_groups[0]["lr"]
    assert isinstance(optimizer, torch.optim.Optimizer) and optimizer.defaults["lr"] == before and "LocalSGD of 2 steps: SGD" in repr(optimizer)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        scheduler.step()
    assert optimizer.optimizer.param_groups[0]["lr"] == before / 8 and optimizer.local_step == 3
    if version() >= (2, 0):
        seen = []
        optimizer.register_step_post_hook(lambda *_: seen.append(1))
        optimizer.step()
        assert seen == [1]


def check_a_checkpoint_of_one_rank():
    """Rank 0 loads it, and the others get it by broadcasts: all go on as if nobody had stopped."""
    for arguments in ({}, {"outer_optimizer": nesterov}, {"outer_optimizer": nesterov, "compression": hvd.Compression.fp16, "fragments": 2}):
        model, optimizer, _ = train(sgd, 6, 5e-3, period=3, **arguments)
        optimizer.average()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        loaded = torch.load(file)
        other = network()
        resumed = hvd.LocalSGD(sgd(other.parameters()), period=3, **arguments)
        if hvd.rank() == 0:
            other.load_state_dict(loaded["model"])
            resumed.load_state_dict(loaded["optimizer"])
        hvd.broadcast_parameters(other.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(resumed, root_rank=0)
        assert resumed.local_step == 6
        for step in range(6, 18):
            resumed.zero_grad()
            loss_of(other, batch(step, hvd.rank())).backward()
            resumed.step()
            if resumed.steps_since_average == 0:
                all_equal(other)
        resumed.average()
        all_equal(other)
        if resumed.outer_optimizer is not None:
            moments = [resumed.outer_optimizer.state[one]["momentum_buffer"] for fragment in resumed._fragments for one in fragment.base]
            for one in moments:
                found = hvd.allgather(one.reshape(1, -1))
                for of_rank in found:
                    equal(found[0], of_rank)


def check_what_one_rank_has_loaded_reaches_the_others():
    """In mid-training, of the last rank: also the outer optimizer's rate, which has no state here, and its momentum there."""
    for outer in (nesterov, lambda parameters: torch.optim.SGD(parameters, lr=1.0)):
        for arguments in ({}, {"compression": hvd.Compression.fp16}, {"delay": 1, "fragments": 2}):
            model = network()
            optimizer = hvd.LocalSGD(sgd(model.parameters()), 2, outer_optimizer=outer, **arguments)
            for step in range(13):
                if step == 7:
                    if hvd.rank() == hvd.size() - 1:
                        state = optimizer.state_dict()
                        state["outer_optimizer"]["param_groups"][0]["lr"] = 0.25
                        optimizer.load_state_dict(state)
                    hvd.broadcast_optimizer_state(optimizer, root_rank=hvd.size() - 1)
                    assert optimizer.outer_optimizer.param_groups[0]["lr"] == 0.25 and optimizer.steps_since_average == 8
                optimizer.zero_grad()
                loss_of(model, batch(step, hvd.rank())).backward()
                optimizer.step()
            optimizer.average()
            all_equal(model)
            same_outer_state(optimizer)


def same_outer_state(optimizer):
    for one in optimizer.outer_optimizer.state.values():
        if one.get("momentum_buffer") is not None:
            found = hvd.allgather(one["momentum_buffer"].reshape(1, -1))
            for of_rank in found:
                equal(found[0], of_rank)


def check_some_have_a_base_and_others_not():
    """One has loaded a state, and the others have not heard of it: the next average is one of whole parameters."""
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        model = network()
        optimizer = hvd.LocalSGD(sgd(model.parameters()), 2, compression=compression)
        for step in range(12):
            if step == 6 and hvd.rank() == hvd.size() - 1:
                optimizer.load_state_dict(optimizer.state_dict())
            optimizer.zero_grad()
            loss_of(model, batch(step, hvd.rank())).backward()
            optimizer.step()
            if step % 2:
                all_equal(model)


def check_an_average_of_what_has_not_moved_is_none():
    model = network()
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 2, outer_optimizer=nesterov, warmup_steps=3)
    for step in range(7):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        if step < 3:  # in the warm-up none is a step of the outer optimizer
            before = [one.detach().clone() for one in model.parameters()]
            optimizer.average()
            assert all(torch.allclose(one, old, atol=1e-6) for one, old in zip(model.parameters(), before)) and not optimizer.outer_optimizer.state
    optimizer.average()
    before = [one.detach().clone() for one in model.parameters()]
    for _ in range(3):
        optimizer.average()
    for one, old in zip(model.parameters(), before):
        equal(one.detach(), old)


def check_a_host_reduces_gradients_in_each_step():
    if hvd.size() < 3:
        return
    host = hvd.add_process_set([0, 1])
    model = network()
    optimizer = hvd.LocalSGD(hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), process_set=host), 4, warmup_steps=1)
    for step in range(5):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        if hvd.rank() < 2:
            found = hvd.allgather(model[0].weight.detach().reshape(1, -1), process_set=host)
            equal(found[0], found[1])
    all_equal(model)

    # By closures, whose gradients all ranks' joined batch has.
    model, reference = network(), network()
    own, plain = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(reference.parameters(), lr=0.1)
    optimizer = hvd.LocalSGD(hvd.DistributedOptimizer(own, model.named_parameters(), process_set=host), 4, warmup_steps=4)
    for step in range(4):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, batch(step, hvd.rank()))
            loss.backward()
            return loss
        optimizer.step(closure)
        plain.zero_grad()
        loss_of(reference, joined(step)).backward()
        plain.step()
        same(model, reference)

    hvd.remove_process_set(host)


def check_a_rank_that_is_no_member_is_alone():
    if hvd.size() == 1:
        return
    some = hvd.add_process_set(list(range(hvd.size() - 1)))
    model, reference = network(), network()
    optimizer, plain = hvd.LocalSGD(sgd(model.parameters()), 2, warmup_steps=1, process_set=some), sgd(reference.parameters())
    for step in range(5):
        for one, of in ((optimizer, model), (plain, reference)):
            one.zero_grad()
            loss_of(of, batch(step, hvd.rank())).backward()
            one.step()
    optimizer.average()
    if some.included():
        found = hvd.allgather(model[0].weight.detach().reshape(1, -1), process_set=some)
        for other in found[1:]:
            equal(found[0], other)
    else:
        same(model, reference)
    hvd.remove_process_set(some)


def check_sparse_gradients():
    for make, warmup in ((torch.optim.SparseAdam, 2), (torch.optim.SparseAdam, 0), (lambda parameters: torch.optim.SGD(parameters, lr=0.1), 2)):
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = hvd.LocalSGD(make(list(table.parameters())), 2, warmup_steps=warmup)
        hvd.broadcast_parameters(table.state_dict(), 0)
        for step in range(4):
            optimizer.zero_grad()
            table(torch.tensor([hvd.rank(), 3])).sum().backward()
            optimizer.step()
            if step < warmup:
                all_equal(table)
                assert table.weight.grad.is_sparse
        all_equal(table)


def check_a_scaler_leaves_out_steps_of_one_rank():
    if not hasattr(torch.amp, "GradScaler"):
        return
    for warmup in (0, 10):
        model = network()
        optimizer = hvd.LocalSGD(sgd(model.parameters()), 3, warmup_steps=warmup)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (3 + hvd.rank()), growth_interval=2)
        reference = Simulated(model, sgd, 3, warmup_steps=warmup)
        for step in range(6):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, batch(step, hvd.rank()))).backward()
            bad = step == 1 and hvd.rank() == 0
            if bad:
                next(model.parameters()).grad[0] = float("inf")
            before = [one.detach().clone() for one in model.parameters()]
            if step == 4:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            if step == 1 and (bad or warmup):
                for one, old in zip(model.parameters(), before):
                    equal(one.detach(), old)
            assert optimizer.local_step == step + 1
            if step < 1:
                reference.step(backward_of(step))
                same(model, reference.models[hvd.rank()])
        assert all(bool(torch.isfinite(one).all()) for one in model.parameters())
        assert scaler.get_scale() >= 2
        optimizer.average()
        all_equal(model)

    # A gradient of some ranks alone, that is not finite: all leave out the step.
    used, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer, scaler = hvd.LocalSGD(torch.optim.SGD([used, other], lr=0.1), 3, warmup_steps=5), torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(used.sum() + (other.sum() * float("inf") if hvd.rank() + 1 == hvd.size() else 0)).backward()
    scaler.step(optimizer)
    equal(torch.cat([used, other]).detach(), torch.ones(4))

    distributed = hvd.LocalSGD(hvd.DistributedOptimizer(torch.optim.SGD([used], lr=0.1)), 3)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(used.sum()).backward()
    assert "does not step a LocalSGD of a DistributedOptimizer" in raises(ValueError, scaler.step, distributed)
    distributed.synchronize()


def check_ranks_that_have_joined_are_left_out():
    model = nn.Linear(2, 1, bias=False)
    for warmup in (0, 10):
        with torch.no_grad():
            model.weight.fill_(8)
        optimizer = hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=1.0), 1, warmup_steps=warmup)
        steps = 4 if hvd.rank() or hvd.size() == 1 else 2
        for step in range(steps):
            model.weight.grad = torch.full_like(model.weight, float(hvd.rank()))
            optimizer.step()
            all_ranks, later = range(hvd.size()), range(1, hvd.size()) or range(1)
            want = 8 - sum(sum(ranks) / len(ranks) for ranks in [all_ranks if at < 2 else later for at in range(step + 1)])
            close(model.weight.detach(), torch.full_like(model.weight, want))
        hvd.join()
        assert optimizer.local_step == 4


def check_after_a_join_all_go_on_together():
    """Epochs of unlike lengths, each of which ends by a join."""
    for arguments in ({"outer_optimizer": nesterov}, {"compression": hvd.Compression.fp16}, {"delay": 2, "fragments": 2, "outer_optimizer": nesterov},
                      {"fragments": 3}):
        model = network()
        optimizer = hvd.LocalSGD(sgd(model.parameters()), 4, **arguments)
        for epoch in range(3):
            for step in range(9 + 3 * hvd.rank()):
                optimizer.zero_grad()
                loss_of(model, batch(step, hvd.rank())).backward()
                optimizer.step()
            hvd.join()
            assert optimizer.local_step == (9 + 3 * (hvd.size() - 1)) * (epoch + 1)
        for step in range(9):
            optimizer.zero_grad()
            loss_of(model, batch(step, hvd.rank())).backward()
            optimizer.step()
        optimizer.average()
        all_equal(model)
        if hvd.size() == 1 or optimizer.outer_optimizer is None:
            continue
        step_of_outer = [one.detach().clone() for one in model.parameters()]
        optimizer.step()
        optimizer.average()
        all_equal(model)
        assert any(not torch.equal(one, old) for one, old in zip(model.parameters(), step_of_outer))


def check_an_elastic_job_goes_back_and_on():
    """With averages on their way, of one rank more than of the others."""
    model = network(seed=hvd.rank())
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 4, delay=2, fragments=2, outer_optimizer=nesterov, compression=hvd.Compression.fp16)
    raised = []

    @hvd.elastic.run
    def train(state):
        for state.step in range(state.step, 16):
            if state.step == 10 and not raised:
                raised.append(optimizer.local_step)
                if hvd.rank() == hvd.size() - 1:
                    raise hvd.HorovodInternalError("by hand")
            optimizer.zero_grad()
            loss_of(model, batch(state.step, hvd.rank())).backward()
            optimizer.step()
            if state.step == 7:
                optimizer.average()
                state.step = 8
                state.commit()
        optimizer.average()
        all_equal(model)
        return state.step

    level = logging.getLogger("aiacc.elastic").level
    logging.getLogger("aiacc.elastic").setLevel(logging.ERROR)
    assert train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)) == 15 and raised == [10] and optimizer.local_step == 16
    logging.getLogger("aiacc.elastic").setLevel(level)
    same_outer_state(optimizer)


def check_ranks_that_disagree_are_told():
    if hvd.size() == 1:
        return
    model = network()
    for arguments in ({"period": 2 + hvd.rank()}, {"period": 2, "warmup_steps": hvd.rank()}):
        optimizer = hvd.LocalSGD(sgd(model.parameters()), **arguments)
        assert "ranks disagree about agreement 'LocalSGD'" in raises(hvd.HorovodInternalError, optimizer.step)


def check_what_is_refused():
    model = network()
    parameters = list(model.parameters())
    assert "period is 0: it is 1 or more" in raises(ValueError, hvd.LocalSGD, sgd(parameters), 0)
    assert "delay is 4: it is 0 or more, and at most 3 (period - 1)" in raises(ValueError, hvd.LocalSGD, sgd(parameters), 4, delay=4)
    assert "fragments is 0" in raises(ValueError, hvd.LocalSGD, sgd(parameters), 4, fragments=0)
    assert f"at most {min(50, len(parameters))}" in raises(ValueError, hvd.LocalSGD, sgd(parameters), 50, fragments=100)
    assert "warmup_steps is -1" in raises(ValueError, hvd.LocalSGD, sgd(parameters), 4, warmup_steps=-1)
    assert "period is 'x'" in raises(TypeError, hvd.LocalSGD, sgd(parameters), "x")
    assert "compression is" in raises(TypeError, hvd.LocalSGD, sgd(parameters), 4, compression="fp16")
    assert "optimizer is" in raises(TypeError, hvd.LocalSGD, model, 4)
    assert "outer_optimizer is" in raises(TypeError, hvd.LocalSGD, sgd(parameters), 4, outer_optimizer=sgd(parameters))
    assert "returns an optimizer" in raises(TypeError, hvd.LocalSGD, sgd(parameters), 4, outer_optimizer=lambda parameters: None)
    assert "floating-point" in raises(ValueError, hvd.LocalSGD, torch.optim.SGD([nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=1.0), 4)
    assert "LBFGS" in raises(ValueError, hvd.LocalSGD, torch.optim.LBFGS(parameters), 4, warmup_steps=1)
    inner = sgd(parameters)
    grows = hvd.LocalSGD(inner, 4)
    inner.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    assert "other parameters since" in raises(ValueError, grows.step)
    made = hvd.LocalSGD(sgd(parameters), 4)
    assert "LocalSGD" in raises(TypeError, hvd.LocalSGD, made, 4)
    assert "the other way round" in raises(ValueError, hvd.DistributedOptimizer, made, model.named_parameters())
    assert "add them to the optimizer" in raises(ValueError, made.add_param_group, {"params": [nn.Parameter(torch.ones(1))]})
    for copied in (copy.deepcopy, pickle.dumps):
        assert "state_dict()" in raises(TypeError, copied, made)


if __name__ == "__main__":
    import sys
    run(globals(), sys.argv[1:])
