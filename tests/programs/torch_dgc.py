"""Deep Gradient Compression beside its formula, which every rank also computes alone for all ranks."""
import hang_report

hang_report.after(250)

import copy
import math
import os
import sys

import torch
from torch import nn

import aiacc.torch as hvd
from aiacc.torch._dgc import RESIDUAL, VELOCITY
from torch_checks import close, raises, run, same
from torch_optimizer import batch, loss_of, network, train

EXACT = {"sample_ratio": 1.0, "compress_upper_bound": 1.0}  # the magnitude from which elements are selected is no estimate


def gradient(step, rank, shape=(7, 9)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * step + rank))


class Formula:
    """What all ranks do, by the paper: of one tensor."""

    def __init__(self, ranks, ratio, momentum, nesterov, masking):
        self.ratio, self.momentum, self.nesterov, self.masking = ratio, momentum, nesterov, masking
        self.u, self.v = [torch.zeros(63) for _ in range(ranks)], [torch.zeros(63) for _ in range(ranks)]

    def sent(self, step, first=0):
        """The sum over the ranks, from the first one."""
        total = torch.zeros(63)
        for rank, (u, v) in list(enumerate(zip(self.u, self.v)))[first:]:
            g = gradient(step, rank).flatten()
            u.copy_(self.momentum * (u + g) if self.nesterov else self.momentum * u + g)
            if self.nesterov:
                v += g
            v += u
            largest = torch.topk(v.abs(), math.ceil(63 * self.ratio)).indices
            total[largest] += v[largest]
            v[largest] = 0
            if self.masking:
                u[largest] = 0
        return total


def one_weight(op=hvd.Sum, momentum=0.9, nesterov=False, weight_decay=0.0, **how):
    weight = nn.Parameter(torch.ones(7, 9))
    sgd = torch.optim.SGD([weight], lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    return weight, hvd.DistributedOptimizer(sgd, [("weight", weight)], op=op, compression=hvd.DGC(**{**EXACT, **how}))


def check_it_is_the_formula():
    for nesterov, masking, op in ((False, True, hvd.Sum), (True, True, hvd.Average), (False, False, hvd.Average)):
        weight, optimizer = one_weight(op, nesterov=nesterov, compress_ratio=0.1, momentum_masking=masking)
        formula, expected = Formula(hvd.size(), 0.1, 0.9, nesterov, masking), torch.ones(63)
        for step in range(12):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            (weight * gradient(step, hvd.rank())).sum().backward()
            optimizer.step()
            if hvd.size() == 1:
                continue
            sum_of_all = formula.sent(step) / (hvd.size() if op == hvd.Average else 1)
            close(weight.grad.flatten(), sum_of_all, 1e-5)
            expected -= 0.1 * sum_of_all
            close(weight.detach().flatten(), expected, 1e-5)
            state = optimizer.state[weight]
            close(state[RESIDUAL].flatten(), formula.v[hvd.rank()], 1e-5)
            close(state[VELOCITY].flatten(), formula.u[hvd.rank()], 1e-5)


def check_nothing_is_lost():
    """What was sent, and what ranks keep, is what momentum made of all gradients."""
    if hvd.size() == 1:
        return
    weight, optimizer = one_weight(compress_ratio=0.03, momentum_masking=False)
    sent, velocities, made = torch.zeros(7, 9), [torch.zeros(7, 9) for _ in range(hvd.size())], torch.zeros(7, 9)
    for step in range(20):
        optimizer.zero_grad()
        (weight * gradient(step, hvd.rank())).sum().backward()
        optimizer.step()
        assert 2 <= int((weight.grad != 0).sum()) <= 2 * hvd.size()
        sent += weight.grad
        for rank, velocity in enumerate(velocities):
            made += velocity.mul_(0.9).add_(gradient(step, rank))
    kept = hvd.allreduce(optimizer.state[weight][RESIDUAL], op=hvd.Sum)
    close(sent + kept, made, 1e-4)
    assert float(kept.abs().sum()) > 0


def check_all_elements_are_sgd_of_the_joined_batch():
    for nesterov in (False, True):
        def sgd(parameters):
            return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01)
        train(sgd, steps=8, compression=hvd.DGC(compress_ratio=1.0, momentum_masking=False))
    # Without momentum nothing is lost by masking.
    train(lambda parameters: torch.optim.SGD(parameters, lr=0.1), steps=4, compression=hvd.DGC(compress_ratio=1.0))


def check_how_many_are_selected():
    made = torch.Generator().manual_seed(5)
    normal = torch.randn(100000, generator=made)
    few = torch.zeros(100000)
    few[::10007] = 1.0
    for values in (normal, normal.exp(), normal / (torch.rand(100000, generator=made) + 1e-6), torch.rand(100000, generator=made), normal.double()):
        for ratio in (0.001, 0.01, 0.25, 1.0):
            for sample_ratio in (0.01, 1.0):
                magnitudes = values.abs()
                indices = hvd.DGC(compress_ratio=ratio, sample_ratio=sample_ratio).select(magnitudes)
                assert 0.8 * ratio * 100000 <= len(indices) <= max(1.3 * ratio * 100000, 1), (ratio, len(indices))
                assert (indices[1:] > indices[:-1]).all(), "ascending, none twice"
                if sample_ratio == 1.0:
                    rest = magnitudes.clone()
                    rest[indices] = 0.0
                    assert rest.max() <= magnitudes[indices].min()
    dgc = hvd.DGC(compress_ratio=0.001)
    assert len(dgc.select(torch.zeros(1000))) == 0
    assert len(dgc.select(torch.full((100000,), 3.0))) == 100
    assert dgc.select(few).tolist() == few.nonzero().flatten().tolist()
    assert dgc.select(torch.tensor([0.0, 2.0, 1.0])).tolist() == [1]
    before = torch.get_rng_state()
    dgc.select(normal.abs())
    assert (torch.get_rng_state() == before).all()


def check_warm_up():
    dgc = hvd.DGC(warmup_epochs=5)
    for epoch, ratio in enumerate([0.3162, 0.1, 0.03162, 0.01, 0.003162, 0.001, 0.001]):
        assert math.isclose(dgc.warmup_compress_ratio(epoch), ratio, rel_tol=1e-3) and math.isclose(dgc.compress_ratio, ratio, rel_tol=1e-3)
    listed = hvd.DGC(warmup_epochs=2, warmup_coeff=[0.25, 0.0625])
    assert [listed.warmup_compress_ratio(epoch) for epoch in range(3)] == [0.25, 0.0625, 0.001]
    assert hvd.DGC(compress_ratio=0.01, warmup_epochs=9, warmup_coeff=0.1).warmup_compress_ratio(4) == 0.01
    assert hvd.DGC().warmup_compress_ratio(0) == 0.001


def check_ranks_stay_alike_and_learn():
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dgc = hvd.DGC(compress_ratio=0.1, warmup_epochs=2, gradient_clipping=lambda one: one.clamp(-1.0, 1.0))
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), backward_passes_per_step=2, compression=dgc)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.5)
    losses = []
    for step in range(60):
        dgc.warmup_compress_ratio(step // 10)
        optimizer.zero_grad()
        losses.append(0.0)
        for part in range(2):
            loss = loss_of(model, batch(part, hvd.rank()))
            loss.backward()
            losses[-1] += loss.item()
        if step % 3 == 0:
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        schedule.step()
    assert losses[-1] < 0.5 * losses[0], losses
    for name, one in model.named_parameters():
        assert all(torch.equal(one, other) for other in hvd.allgather(one.detach()[None])), name


def check_schedulers_made_before_and_hooks():
    """A scheduler of the plain optimizer, as Horovod's examples have it; and what sees the optimizer within a step finds it as it is."""
    weight = nn.Parameter(torch.ones(7, 9))
    sgd = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(sgd, 2, 0.5)
    optimizer = hvd.DistributedOptimizer(sgd, [("weight", weight)], op=hvd.Sum, compression=hvd.DGC(compress_ratio=0.1, **EXACT))
    saved = []
    if hasattr(optimizer, "register_step_post_hook"):
        optimizer.register_step_post_hook(lambda its, *_: saved.append(copy.deepcopy(its.state_dict()["param_groups"])))
    formula, expected = Formula(hvd.size(), 0.1, 0.9, False, True), torch.ones(63)
    for step in range(5):
        optimizer.zero_grad()
        (weight * gradient(step, hvd.rank())).sum().backward()
        optimizer.step()
        expected -= 0.1 * 0.5 ** (step // 2) * formula.sent(step)
        if hvd.size() > 1:
            close(weight.detach().flatten(), expected, 1e-5)
        schedule.step()
    assert all(len(groups) == 1 and groups[0]["momentum"] == 0.9 for groups in saved)
    optimizer.param_groups[0]["maximize"] = True
    if hvd.size() > 1:
        (weight * 1.0).sum().backward()
        assert "maximize" in raises(ValueError, optimizer.step)


def check_gradients_that_share_memory():
    """As of a sum of one parameter and a view of another one; and of the caller's own."""
    one, other = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3, 2))
    named = [("one", one), ("other", other)]
    how = hvd.DGC(compress_ratio=0.5, gradient_clipping=lambda found: found.mul_(2.0), **EXACT)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([one, other], lr=1.0), named, op=hvd.Sum, compression=how)
    factors = torch.arange(1.0, 7.0).view(3, 2)
    for step in range(2):
        optimizer.zero_grad()
        ((one.view(3, 2) + other) * factors).sum().backward()
        optimizer.step()
    if hvd.size() > 1:
        first = 1.0 - 2 * hvd.size() * torch.tensor([0.0, 0.0, 0.0, 4.0, 5.0, 6.0])
        second = -2 * hvd.size() * torch.tensor([0.0, 0.0, 6.0, 4.0, 5.0, 6.0])  # 3 had grown to 6, beside 4, 5 and 6
        expected = first + torch.where(torch.arange(6) == 3, torch.zeros(6), second)
        for found in (one, other):
            close(found.detach().flatten(), expected, 1e-5)
        own = torch.ones(6)
        optimizer.zero_grad()
        one.view(-1).backward(own)
        optimizer.step()
        close(own, torch.ones(6))


def check_closures():
    def steps(with_closure):
        weight, optimizer = one_weight(weight_decay=0.01, compress_ratio=0.1)
        for step in range(4):
            def loss():
                optimizer.zero_grad()
                found = (weight * gradient(step, hvd.rank())).sum()
                found.backward()
                return found
            if with_closure:
                assert optimizer.step(loss) is not None
            else:
                loss()
                optimizer.step()
        return weight
    assert torch.equal(steps(True), steps(False))


def kept(optimizer, weight):
    """A copy of what DGC keeps of the weight. (SGD of torch 1 has None beside it.)"""
    return {name: value.clone() for name, value in optimizer.state[weight].items() if name.startswith("dgc")}


def check_states():
    def step_of(weight, optimizer, step):
        optimizer.zero_grad()
        (weight * gradient(step, hvd.rank())).sum().backward()
        optimizer.step()
    how = {"compress_ratio": 0.1, "weight_decay": 0.01}
    weight, optimizer = one_weight(**how)
    for step in range(3):
        step_of(weight, optimizer, step)
    again, other = one_weight(**how)
    again.data.copy_(weight.data)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for step in range(3, 6):
        step_of(weight, optimizer, step)
        step_of(again, other, step)
        assert torch.equal(weight, again)
    own = kept(optimizer, weight)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    now = kept(optimizer, weight)
    assert len(own) == (3 if hvd.size() > 1 else 0) and own.keys() == now.keys() and all(torch.equal(value, own[name]) for name, value in now.items())
    if hvd.size() > 1:
        assert not torch.equal(*hvd.allgather(own[RESIDUAL][None])[:2]), "ranks keep what is theirs"


def check_a_gradient_that_is_not_finite():
    """With AIACC_NAN_CHECK all ranks leave the step out, and are as before it; without it all see it."""
    if hvd.size() == 1:
        return
    leaves_out = bool(os.environ.get("AIACC_NAN_CHECK"))
    weight, optimizer = one_weight(compress_ratio=0.1)
    for step in range(3):
        optimizer.zero_grad()
        given = gradient(step, hvd.rank())
        if step == 1 and hvd.rank() == hvd.size() - 1:
            given[2, 3] = math.nan
        before = [weight.detach().clone(), *kept(optimizer, weight).values()]
        (weight * given).sum().backward()
        if step == 1 and leaves_out:
            import warnings
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                optimizer.step()
            assert any("changes no parameter" in str(one.message) for one in said)
            assert all(torch.equal(one, other) for one, other in zip(before, [weight, *kept(optimizer, weight).values()], strict=True))
        else:
            optimizer.step()
        if step == 1 and not leaves_out:
            assert weight.grad.isnan().nonzero().tolist() == [[2, 3]] and not optimizer.state[weight][RESIDUAL].isnan().any()
            return
    formula = Formula(hvd.size(), 0.1, 0.9, False, True)
    expected = torch.ones(63) - 0.1 * formula.sent(0)
    close(weight.detach().flatten(), expected - 0.1 * formula.sent(2), 1e-5)


def check_ranks_that_run_out_of_data():
    weight, optimizer = one_weight(compress_ratio=0.1)
    formula, expected = Formula(hvd.size(), 0.1, 0.9, False, True), torch.ones(63)
    for step in range(3 + hvd.rank()):
        optimizer.zero_grad()
        (weight * gradient(step, hvd.rank())).sum().backward()
        optimizer.step()
        expected -= 0.1 * formula.sent(step, first=max(0, step - 2))
    hvd.join()
    if hvd.size() > 1:
        close(weight.detach().flatten(), expected, 1e-5)


def check_shapes_and_types():
    """What is not compressed travels whole."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2)).to(memory_format=torch.channels_last)
    double, half = nn.Parameter(torch.ones(5, 4, dtype=torch.float64)), nn.Parameter(torch.ones(5, 4, dtype=torch.bfloat16))
    named = [*model.named_parameters(), ("double", double), ("half", half), ("no gradient", nn.Parameter(torch.ones(3, 3)))]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([one for _, one in named], lr=0.1, momentum=0.5), named, compression=hvd.DGC(compress_ratio=0.25))
    for step in range(4):
        optimizer.zero_grad()
        x = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(hvd.rank())).to(memory_format=torch.channels_last)
        (model(x).sum() + (double * hvd.rank()).sum() + half.sum()).backward()
        optimizer.step()
    for name, one in named:
        gathered = hvd.allgather(one.detach().float().contiguous()[None])
        assert all(torch.equal(one, gathered[0]) for one in gathered), name
    assert model[0].weight.grad.stride() == model[0].weight.stride()
    if hvd.size() > 1:
        compressed = [name for name, one in named if RESIDUAL in optimizer.state[one]]
        assert compressed == ["0.weight", "3.weight", "double", "no gradient"], compressed


def check_a_model_that_gets_another_type():
    weight, optimizer = one_weight(compress_ratio=0.1, weight_decay=0.01)
    for step in range(4):
        if step == 2:
            weight.grad, weight.data = None, weight.data.double()
        optimizer.zero_grad()
        (weight * gradient(step, hvd.rank())).sum().backward()
        optimizer.step()
    gathered = hvd.allgather(weight.detach()[None])
    assert weight.grad.dtype == torch.float64 and all(torch.equal(one, gathered[0]) for one in gathered)


def check_what_is_refused():
    weight = nn.Parameter(torch.ones(2, 2))
    def wrapped(optimizer, **arguments):
        return hvd.DistributedOptimizer(optimizer, [("weight", weight)], compression=hvd.DGC(), **arguments)
    assert "torch.optim.SGD" in raises(ValueError, wrapped, torch.optim.Adam([weight]))
    assert "dampening" in raises(ValueError, wrapped, torch.optim.SGD([weight], lr=0.1, momentum=0.9, dampening=0.1))
    assert "maximize" in raises(ValueError, wrapped, torch.optim.SGD([weight], lr=0.1, maximize=True))
    for op in (hvd.Adasum, hvd.Max):
        assert "Average or Sum" in raises(ValueError, wrapped, torch.optim.SGD([weight], lr=0.1), op=op)
    for name, value in (("compress_ratio", 0.0), ("compress_ratio", 1.5), ("sample_ratio", -1), ("compress_lower_bound", 2.0), ("compress_upper_bound", 0.5),
                        ("max_adaptation_iters", 0), ("warmup_coeff", 7.0)):
        assert name in raises(ValueError, hvd.DGC, **{name: value})
    assert "compress_ratio" in raises(TypeError, hvd.DGC, compress_ratio="much")
    assert "gradient_clipping" in raises(TypeError, hvd.DGC, gradient_clipping=3)
    assert "warmup_coeff" in raises(ValueError, hvd.DGC, warmup_epochs=3, warmup_coeff=[0.5])
    assert "compression" in raises(TypeError, hvd.allreduce, torch.ones(2), compression=hvd.DGC())


if __name__ == "__main__":
    run(globals(), sys.argv[1:])
