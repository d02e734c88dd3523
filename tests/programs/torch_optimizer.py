"""DistributedOptimizer and what goes with it: every rank also trains alone on the joined batch, which must give the same."""
import hang_report

hang_report.after(250)

import copy
import gc
import os
import sys
import warnings

import torch
from torch import nn

import aiacc.torch as hvd
from torch_checks import close, raises, run, same


def network(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


def batch(step, rank):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(4, 6, generator=made), torch.randint(0, 3, (4,), generator=made)


def loss_of(model, data):
    return nn.functional.cross_entropy(model(data[0]), data[1])


def joined(step):
    parts = [batch(step, rank) for rank in range(hvd.size())]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def train(make, steps=4, tolerance=1e-5, before_step=None, **arguments):
    """The model after some steps with DistributedOptimizer, seen to be that of one process on the joined batches."""
    model, reference = network(), network()
    plain = make(reference.parameters())
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), **arguments)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        plain.zero_grad()
        loss_of(reference, joined(step)).backward()
        plain.step()
        same(model, reference, tolerance)
    return model, optimizer


def check_an_optimizer_that_was_dropped_and_is_collected_on_one_rank_only():
    gc.disable()
    hvd.DistributedOptimizer(sgd(network().parameters()))
    if hvd.rank() == 0:
        gc.collect()
    hvd.join()
    gc.enable()


def check_a_scheduler_that_was_made_before():
    """It has put a `step` into the plain optimizer, which is not the one that reduces."""
    model, reference = network(), network()
    optimizers, schedules = [], []
    for one in (model, reference):
        optimizers.append(torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9))
        schedules.append(torch.optim.lr_scheduler.StepLR(optimizers[-1], 2, 0.5))
    optimizers[0] = hvd.DistributedOptimizer(optimizers[0], model.named_parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(4):
            for optimizer, its, data in zip(optimizers, (model, reference), (batch(step, hvd.rank()), joined(step))):
                optimizer.zero_grad()
                loss_of(its, data).backward()
                optimizer.step()
            for schedule in schedules:
                schedule.step()
            same(model, reference)
    assert optimizers[0].param_groups[0]["lr"] == 0.025


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def check_it_is_training_on_the_joined_batch():
    train(sgd)
    train(adam)
    train(lambda parameters: torch.optim.AdamW(parameters, lr=0.01))


def check_arguments_that_change_nothing():
    train(sgd, groups=2)
    train(sgd, gradient_predivide_factor=2.0)
    train(sgd, sparse_as_dense=True)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        _, optimizer = train(sgd, steps=8, compression=compression, tolerance=2e-2)
        if hvd.size() > 1:  # the engine converts: gradients stay in fp32 and are reduced where backward wrote them
            stats = optimizer._reducer.engine.stats()
            assert stats["wire_bytes"] < 0.7 * stats["bytes"] and stats["packed_bytes"] == 0, stats
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(sgd, num_groups=3)
    assert any("num_groups" in str(one.message) for one in said)

    class Half(hvd.Compression.none):
        @staticmethod
        def compress(tensor):
            return tensor / 2, 2.0

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * ctx
    train(sgd, compression=Half)
    model = network()
    listed = [list(model.parameters())[:2], [list(model.parameters())[3]]]
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), groups=listed)
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.step()


def check_op_sum():
    model, reference = network(), network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Sum)
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.step()
    plain = torch.optim.SGD(reference.parameters(), lr=0.1 * hvd.size())
    loss_of(reference, joined(0)).backward()
    plain.step()
    same(model, reference)


def check_several_passes_a_step():
    model, reference = network(), network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=2)
    plain = sgd(reference.parameters())
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        for part in range(2):
            loss_of(model, batch(2 * step + part, hvd.rank())).backward()
            loss_of(reference, joined(2 * step + part)).backward()
        optimizer.step()
        plain.step()
        same(model, reference)
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    loss_of(model, batch(0, hvd.rank())).backward()
    if hvd.size() > 1:
        assert "backward_passes_per_step" in raises(AssertionError, loss_of(model, batch(1, hvd.rank())).backward)
        assert "on their way" in raises(AssertionError, optimizer.zero_grad)
    optimizer.synchronize()


def check_clipping_between_synchronize_and_step():
    model, reference = network(), network()
    optimizer, plain = hvd.DistributedOptimizer(sgd(model.parameters())), sgd(reference.parameters())
    for step in range(3):
        for one, each, data in ((model, optimizer, batch(step, hvd.rank())), (reference, plain, joined(step))):
            each.zero_grad()
            loss_of(one, data).backward()
            if each is optimizer:
                optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(one.parameters(), 0.1)
            if each is optimizer:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                each.step()
        same(model, reference)


def check_closures():
    """That evaluate once, and several times a step."""
    for make in (sgd, lambda parameters: torch.optim.LBFGS(parameters, lr=0.5, max_iter=4, line_search_fn="strong_wolfe")):
        model, reference = network(), network()
        optimizer, plain = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters()), make(reference.parameters())
        for step in range(3):
            def evaluate():
                optimizer.zero_grad()
                loss = loss_of(model, batch(step, hvd.rank()))
                loss.backward()
                return hvd.allreduce(loss.detach(), name="loss")  # by which a line search decides

            def evaluate_alone():
                plain.zero_grad()
                loss = loss_of(reference, joined(step))
                loss.backward()
                return loss
            close(optimizer.step(evaluate), plain.step(evaluate_alone).detach())
            same(model, reference, 1e-3)


def check_unused_parameters_and_steps_without_backward():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x, which):
            return self.a(x) if which == 0 else self.b(x)
    model, reference = Branches(), Branches()
    optimizer, plain = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1)), torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(4):
        which = [(rank + step) % 2 for rank in range(hvd.size())]  # ranks take different branches, and change them
        optimizer.zero_grad()
        x, y = batch(step, hvd.rank())
        nn.functional.cross_entropy(model(x, which[hvd.rank()]), y).backward()
        optimizer.step()
        plain.zero_grad()
        parts = [batch(step, rank) for rank in range(hvd.size())]
        sum(nn.functional.cross_entropy(reference(part[0], one), part[1]) for part, one in zip(parts, which)).div(hvd.size()).backward()
        plain.step()
        same(model, reference)
    before = copy.deepcopy(model.state_dict())
    optimizer.zero_grad()
    optimizer.step()
    for key, value in model.state_dict().items():
        close(value, before[key])
    if hvd.rank() == 0:  # the others have none, and take part with zeros
        model(torch.ones(1, 6), 0).sum().backward()
    optimizer.step()
    assert len({str(one) for one in hvd.allgather_object([float(value.sum()) for value in model.state_dict().values()])}) == 1


def check_gradients_in_another_order_on_each_rank():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.parts = nn.ModuleList([nn.Linear(6, 3) for _ in range(4)])

        def forward(self, x, order):
            y = 0
            for i in order:
                y = (y + self.parts[i](x)).tanh()
            return y
    model = Sum()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for step in range(4):
        order = torch.randperm(4, generator=torch.Generator().manual_seed(10 * step + hvd.rank())).tolist()
        optimizer.zero_grad()
        model(batch(step, hvd.rank())[0], order).sum().backward()
        optimizer.step()
        assert len(set(hvd.allgather_object(model.parts[0].weight.sum().item()))) == 1


def check_types_layouts_and_frozen_parameters():
    torch.manual_seed(5)
    model = {"half": nn.Parameter(torch.randn(5).to(torch.bfloat16)), "double": nn.Parameter(torch.randn(4, 3).double()),
             "last": nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)),
             "gaps": nn.Parameter(torch.randn(6, 4)[:, ::2]), "none": nn.Parameter(torch.empty(0, 3)),
             "scalar": nn.Parameter(torch.tensor(2.0)), "frozen": nn.Parameter(torch.ones(2), requires_grad=False)}
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.values(), lr=1.0), list(model.items()))
    start = {key: value.detach().clone() for key, value in model.items()}
    for _ in range(2):
        optimizer.zero_grad()
        sum((one * (hvd.rank() + 1)).sum().float() for one in model.values() if one.requires_grad).backward()
        optimizer.step()
    for key, value in model.items():
        moved = 0.0 if key == "frozen" else (hvd.size() + 1)
        close((start[key].double() - value.detach().double()), torch.full(value.shape, float(moved), dtype=torch.float64), 5e-2 if key == "half" else 1e-5)


def check_join_with_batches_left_on_other_ranks():
    """Rank r has 2 + r batches. Those that are out contribute zeros, and the average divides by all ranks."""
    size, rank = hvd.size(), hvd.rank()
    model, reference = network(), network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(2 + size - 1):
        if step < 2 + rank:
            optimizer.zero_grad()
            loss_of(model, batch(step, rank)).backward()
            optimizer.step()
        plain.zero_grad()
        (sum(loss_of(reference, batch(step, other)) for other in range(size) if step < 2 + other) / size).backward()
        plain.step()
    assert hvd.join() == size - 1
    hvd.broadcast_parameters(model.state_dict(), root_rank=size - 1)
    same(model, reference)
    optimizer.zero_grad()
    loss_of(model, batch(0, rank)).backward()
    optimizer.step()


def check_within_a_process_set():
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([0, 2])
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), process_set=pair)
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.step()
    sums = hvd.allgather_object(sum(one.sum().item() for one in model.parameters()))
    assert sums[0] == sums[2] != sums[1]
    hvd.remove_process_set(pair)


def check_the_class_is_the_users():
    model, optimizer = train(sgd)
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loss_of(model, batch(0, hvd.rank())).backward()
    assert optimizer.step(lambda: 7.0) == 7.0
    scheduler.step()
    assert abs(optimizer.param_groups[0]["lr"] - 0.01) < 1e-9
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(sgd)


def check_faults():
    model = network()
    make = lambda *arguments, **keywords: hvd.DistributedOptimizer(sgd(model.parameters()), *arguments, **keywords)  # noqa: E731
    assert "twice" in raises(ValueError, make, [("a", one) for one in model.parameters()])
    assert "lacks" in raises(ValueError, make, list(model.named_parameters())[1:])
    assert "(name, parameter)" in raises(ValueError, make, model.parameters())
    assert "predivide" in raises(ValueError, make, gradient_predivide_factor=2.0, op=hvd.Sum)
    assert "1 or more" in raises(ValueError, make, backward_passes_per_step=0)
    assert "groups" in raises(ValueError, make, groups=-1)
    assert "groups" in raises(ValueError, make, groups=[[torch.ones(1)]])
    if hvd.size() == 3:
        assert "Adasum" in raises(NotImplementedError, make, op=hvd.Adasum)


def check_broadcasting_parameters_and_optimizer_state():
    for make in (sgd, adam, lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5), lambda p: torch.optim.Adagrad(p, lr=0.05)):
        model = network(seed=10 + hvd.rank())
        optimizer = make(model.parameters())
        if hvd.rank() == 0:  # as after loading a checkpoint on one rank
            for step in range(2):
                optimizer.zero_grad()
                loss_of(model, batch(step, 0)).backward()
                optimizer.step()
            optimizer.param_groups[0]["lr"] = 0.033
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        wrapped = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_optimizer_state(wrapped, root_rank=0)
        assert wrapped.param_groups[0]["lr"] == 0.033
        for step in range(2):
            wrapped.zero_grad()
            loss_of(model, batch(step, hvd.rank())).backward()
            wrapped.step()
        said = [[one.sum().item() for one in model.parameters()], sorted(str(value) for values in wrapped.state_dict()["state"].values()
                                                                       for value in values.values())]
        assert len({str(one) for one in hvd.allgather_object(said)}) == 1
    fresh = network(seed=3)
    frozen, *trained = fresh.parameters()
    frozen.requires_grad_(False)
    hvd.broadcast_optimizer_state(hvd.DistributedOptimizer(sgd(fresh.parameters()), fresh.named_parameters()), root_rank=0)
    assert frozen.grad is None and all(not one.grad.any() for one in trained)
    hvd.broadcast_parameters(list(model.named_parameters()), 0)
    hvd.broadcast_parameters(list(model.parameters()), 0)
    assert "list()" in raises(ValueError, hvd.broadcast_parameters, model.parameters(), 0)
    assert "LBFGS" in raises(ValueError, hvd.broadcast_optimizer_state, torch.optim.LBFGS(model.parameters()), 0)


def check_elastic_sampler():
    sampler = hvd.ElasticSampler(range(23), shuffle=True, seed=3)
    for epoch in range(2):
        seen = sum(hvd.allgather_object(list(sampler)), [])
        assert set(seen) == set(range(23)) and len(sampler) * hvd.size() == len(seen)
        for number in range(2):
            sampler.record_batch(number, 2)
        state = sampler.state_dict()
        processed = sampler.processed_indices
        taken = set().union(*hvd.allgather_object(sampler.indices[:4]))
        assert state["processed_num"] == sampler.processed_num == 4 * hvd.size() and processed == taken
        other = hvd.ElasticSampler(range(23), shuffle=True, seed=3)
        other.load_state_dict(state)
        left = sum(hvd.allgather_object(list(other)), [])
        assert set(left) == set(range(23)) - processed
        sampler.set_epoch(epoch + 1)
        assert sampler.processed_num == 0 and sampler.processed_indices == set()


def check_a_gradient_that_is_not_finite_leaves_out_the_step_on_all_ranks():
    if os.environ.get("AIACC_NAN_CHECK") != "yes":
        return
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for step in range(12):
        bad = step in (2, 9)

        def evaluate():
            optimizer.zero_grad()
            loss = loss_of(model, batch(step, hvd.rank()))
            (loss * float("nan") if bad and hvd.rank() == 1 else loss).backward()
            return loss
        before = [one.detach().clone() for one in model.parameters()]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if step < 6:
                evaluate()
            optimizer.step(*([evaluate] if step >= 6 else []))
        changed = [not torch.equal(one, other) for one, other in zip(model.parameters(), before)]
        assert any(changed) != bad, (step, changed)
        assert [one.category for one in said] == ([RuntimeWarning] if bad else []), [str(one.message) for one in said]
        assert not bad or "of rank 1 is not finite" in str(said[0].message), said[0].message
    assert all(bool(torch.isfinite(one).all()) for one in model.parameters())
    for bad in (1, 3):  # which of the evaluations of a step
        model, evaluations = network(), []
        optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4), model.named_parameters())
        before = [one.detach().clone() for one in model.parameters()]

        def evaluate_often():
            evaluations.append([one.detach().clone() for one in model.parameters()])
            optimizer.zero_grad()
            loss = loss_of(model, batch(0, hvd.rank()))
            (loss * float("nan") if len(evaluations) == bad and hvd.rank() == 1 else loss).backward()
            return loss
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer.step(evaluate_often)
        text, = [str(one.message) for one in said if one.category is RuntimeWarning]
        assert ("changes no parameter" if bad == 1 else "ends on all ranks with the parameters of this evaluation") in text, text
        assert len(evaluations) == bad and all(torch.equal(one, other) for one, other in zip(model.parameters(), evaluations[-1]))
        assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before)) == (bad == 1)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
