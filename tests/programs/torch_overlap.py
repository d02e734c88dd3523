"""Steps that update parameters one after the other, while other gradients are on their way and the next forward pass begins: every rank also
trains alone on the joined batches, which must give the same."""
import hang_report

hang_report.after(250)

import copy
import gc
import io
import sys
import threading
import time
import warnings

import torch
from torch import nn

import aiacc.torch as hvd
from aiacc.gradients import Engine, checks_nan
from torch_checks import close, equal, raises, run, same, version
from torch_optimizer import batch, joined, loss_of, network, sgd


def zeroed_by_the_optimizer(model, optimizer):
    optimizer.zero_grad()


def train(make, model=None, data=(batch, joined), steps=6, zero=zeroed_by_the_optimizer, each_step=lambda step, model, optimizer: None, tolerance=1e-5,
          passes=1, **arguments):
    """The model after some steps, seen to be that of one process on the joined batches. `each_step`: what is done to both behind each step."""
    model = network() if model is None else model
    reference = copy.deepcopy(model)
    plain = make(reference.parameters())
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), overlap_forward=model, backward_passes_per_step=passes,
                                         **arguments)
    of_rank, of_all = data
    for step in range(steps):
        zero(model, optimizer)
        plain.zero_grad()
        for number in range(step * passes, (step + 1) * passes):
            loss_of(model, of_rank(number, hvd.rank())).backward()
            loss_of(reference, of_all(number)).backward()
        optimizer.step()
        plain.step()
        each_step(step, model, optimizer)
        each_step(step, reference, plain)
    same(model, reference, tolerance)
    return model, optimizer


def train_both(pairs, steps=5):
    """Models and their optimizers: the first one by this rank's batches, the other by those of all."""
    for step in range(steps):
        for (model, optimizer), data in zip(pairs, (batch(step, hvd.rank()), joined(step))):
            optimizer.zero_grad()
            loss_of(model, data).backward()
            optimizer.step()
    same(pairs[0][0], pairs[1][0])


def is_ahead(optimizer):
    """Whether the last step has left parameters to update."""
    return optimizer._overlap is not None and optimizer._overlap._updates is not None


def outstanding_step():
    """A model and its optimizer after a step of which, on all ranks but the last, no gradient is reduced yet, because the last rank had not begun its
    backward pass; and what the model is to be with it."""
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap_forward=model)
    reference = network()
    plain = sgd(reference.parameters())
    for step in range(3):
        plain.zero_grad()
        loss_of(reference, joined(step)).backward()
        plain.step()
        if step == 2:
            break
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
    optimizer.zero_grad()
    loss = loss_of(model, batch(2, hvd.rank()))
    before = model[0].weight.detach().clone()
    if hvd.rank() + 1 == hvd.size():
        assert hvd.broadcast_object("the others have made their step", root_rank=0, name="begin") is not None
    loss.backward()
    optimizer.step()
    if hvd.rank() + 1 < hvd.size():
        assert is_ahead(optimizer)
        equal(model[0].weight.detach(), before)
        hvd.broadcast_object("the others have made their step", root_rank=0, name="begin")
    return model, optimizer, reference


def check_a_step_does_not_wait_and_who_looks_does():
    """Each way to look at the parameters, or at what belongs to them, sees those of the step."""
    if hvd.size() == 1:
        return

    def saved(model, optimizer):
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        return torch.load(file, **({"weights_only": False} if version() >= (1, 13) else {}))

    def averaged(model, optimizer):
        made = torch.optim.swa_utils.AveragedModel(model)
        made.update_parameters(model)
        return made.module
    looks = {"parameters": lambda model, optimizer: list(model.parameters()) and model,
             "state_dict": lambda model, optimizer: (made := network(2)).load_state_dict(model.state_dict()) and made,
             "a state_dict of what has it": lambda model, optimizer: (made := network(2)).load_state_dict(
                 {name[2:]: one for name, one in nn.Sequential(model).state_dict().items()}) and made,
             "a copy": lambda model, optimizer: copy.deepcopy(model), "a file": saved, "an average": averaged,
             "another type": lambda model, optimizer: model.double().float(),
             "wait_for_updates": lambda model, optimizer: optimizer.wait_for_updates() or model,
             "the optimizer's state": lambda model, optimizer: optimizer.state_dict() and model,
             "synchronize": lambda model, optimizer: optimizer.synchronize() or model,
             "a forward pass": lambda model, optimizer: (model(torch.zeros(1, 6)), model)[1]}
    for what, look in looks.items():
        model, optimizer, reference = outstanding_step()
        seen = look(model, optimizer)
        for one, other in zip(nn.Module.parameters(seen), reference.parameters()):
            close(one, other, 1e-5)
        assert not is_ahead(optimizer), what
        assert type(model).__name__ == "Sequential" and type(copy.deepcopy(model)) is nn.Sequential


def check_loading_a_state_is_not_overtaken():
    if hvd.size() == 1:
        return
    loaded = network(5).state_dict()
    for load in (lambda model: model.load_state_dict(loaded),
                 lambda model: nn.Sequential(model).load_state_dict({f"0.{name}": one for name, one in loaded.items()})):
        model, optimizer, _ = outstanding_step()
        load(model)
        optimizer.wait_for_updates()
        for name, one in model.state_dict().items():
            equal(one, loaded[name])
    optimizer.load_state_dict(optimizer.state_dict())
    hvd.join()  # with nothing outstanding


def check_what_is_outstanding_when_ranks_join_or_nobody_holds_the_optimizer():
    if hvd.size() == 1:
        return
    model, optimizer, reference = outstanding_step()
    del optimizer
    gc.collect()
    same(model, reference)
    model, optimizer, reference = outstanding_step()
    hvd.join()
    assert not is_ahead(optimizer)
    same(model, reference)


def check_each_optimizer():
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "RMSprop", "Rprop", "Adafactor"):
        made = getattr(torch.optim, name, None)
        if made is not None:
            train(lambda parameters: made(parameters, lr=0.01), tolerance=1e-4 if name != "Rprop" else 1e-2)
    train(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
    train(lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True, **({"fused": True} if version() >= (2, 4) else {})))
    if version() >= (2, 0):
        train(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True))

    class Own(torch.optim.SGD):
        """Has no step of its own."""
    train(lambda parameters: Own(parameters, lr=0.1))


def check_arguments():
    train(sgd, groups=2)
    train(sgd, passes=2)
    train(sgd, gradient_predivide_factor=2.0)
    train(sgd, steps=8, compression=hvd.Compression.fp16, tolerance=2e-2)
    model = network()
    groups = [{"params": list(model[0].parameters()), "lr": 0.01}, {"params": list(model[2].parameters()) + list(model[4].parameters())}]
    reference = copy.deepcopy(model)
    plain = torch.optim.SGD([{"params": list(reference[0].parameters()), "lr": 0.01},
                             {"params": list(reference[2].parameters()) + list(reference[4].parameters())}], lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1, momentum=0.9), model.named_parameters(), overlap_forward=model)
    train_both([(model, optimizer), (reference, plain)])


def check_ways_to_zero_gradients():
    train(sgd, zero=lambda model, optimizer: model.zero_grad())
    train(sgd, zero=lambda model, optimizer: model.zero_grad(set_to_none=False))
    train(sgd, zero=lambda model, optimizer: optimizer.zero_grad(set_to_none=False))
    if hvd.size() > 1:
        for zero in (lambda model, optimizer: model.zero_grad(), lambda model, optimizer: optimizer.zero_grad()):
            model, optimizer, reference = outstanding_step()
            ahead = is_ahead(optimizer)
            zero(model, optimizer)
            assert is_ahead(optimizer) == ahead and all(one.grad is None for one in nn.Module.parameters(model) if ahead)
            same(model, reference)


def check_what_is_changed_behind_a_step_is_of_the_next_one():
    """Learning rates by a scheduler, also those in tensors; a parameter by hand."""
    schedules = {}

    def halve(step, model, optimizer):
        if optimizer not in schedules:
            schedules[optimizer] = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # made behind the first step
            schedules[optimizer].step()
    train(sgd, each_step=halve)
    if version() >= (2, 2):
        schedules.clear()
        train(lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.01), foreach=False), each_step=halve)

    def clamp(step, model, optimizer):
        for parameter in model.parameters():
            parameter.data.clamp_(-0.3, 0.3)
    train(sgd, each_step=clamp)


def check_between_hosts_a_parameter_is_updated_while_a_gradient_is_missing():
    """The last rank makes the second gradient when it has heard that the first rank has updated the other parameter, which another thread sees: step()
    is still waiting there."""
    if hvd.size() != 2 or hvd.local_size() == 2:
        return
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=0.1))
    for step in range(2):
        optimizer.zero_grad()
        first.sum().backward()
        if step == 1 and hvd.rank() == 0:
            def tell():
                end = time.monotonic() + 60
                while first[0].item() > 0.85 and time.monotonic() < end:
                    time.sleep(0.01)
                found.append((first[0].item(), second[0].item()))
                hvd.broadcast_object("one is updated", root_rank=0, name="told")
            found, teller = [], threading.Thread(target=tell)
            teller.start()
        elif step == 1:
            hvd.broadcast_object(None, root_rank=0, name="told")
        second.sum().backward()
        optimizer.step()
    if hvd.rank() == 0:
        teller.join()
        assert abs(found[0][0] - 0.8) < 1e-6 and abs(found[0][1] - 0.9) < 1e-6, found


def check_what_the_next_forward_pass_needs_first_has_the_highest_priority():
    if hvd.size() == 1:
        return
    added, add = {}, Engine.add

    def record(self, name, *arguments, **keywords):
        added[name] = arguments[6]
        return add(self, name, *arguments, **keywords)
    Engine.add = record
    try:
        train(sgd, steps=1)
    finally:
        Engine.add = add
    numbers = [added[f"{layer}.weight"] for layer in (0, 2, 4)]
    assert numbers == sorted(set(numbers), reverse=True) and added["0.bias"] == numbers[0], added


def check_a_gradient_that_is_not_finite():
    """With AIACC_NAN_CHECK no rank updates anything."""
    if not checks_nan() or hvd.size() == 1:
        return
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap_forward=model)
    for step in range(4):
        before = [one.detach().clone() for one in model.parameters()]
        loss = loss_of(model, batch(step, hvd.rank())) * (float("nan") if step == 2 and hvd.rank() == 1 else 1.0)
        loss.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
        assert all(torch.equal(one, other) == (step == 2) for one, other in zip(model.parameters(), before)), step


def check_parameters_that_come_and_go():
    """Those of a group that was taken away are not updated; those of a new one are, by their own rank's gradients, as without overlap_forward."""
    model, new = network(), nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([{"params": list(one.parameters())} for one in (model[0], model[2], model[4])], lr=0.1),
                                         overlap_forward=model)
    removed = None
    for step in range(6):
        optimizer.zero_grad()
        (model(batch(step, hvd.rank())[0]) * new).sum().backward()
        optimizer.step()
        if step == 1:
            optimizer.wait_for_updates()
            removed = optimizer.param_groups.pop(0), copy.deepcopy(model[0])
        if step == 3:
            optimizer.add_param_group({"params": [new]})
    same(model[0], removed[1], 0)
    assert not torch.equal(new, torch.ones(3))


def check_an_error_of_the_optimizer():
    """The rest of the step is reduced, as the other ranks wait for it, and the next one is a step as others."""
    if hvd.size() == 1:
        return
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), overlap_forward=model)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.ones(1, 6)).sum().backward()
        if step == 2 and hvd.rank() == 0:
            optimizer.param_groups[0]["lr"] = None
        optimizer.step()
        if step == 2 and hvd.rank() == 0:
            optimizer.param_groups[0]["lr"] = 0.1
            raises(TypeError, optimizer.wait_for_updates)
            assert all(one.grad is None for one in nn.Module.parameters(model))
    optimizer.wait_for_updates()


def check_a_gradient_of_this_ranks_own_is_kept():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), overlap_forward=model)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 6)).sum().backward()
        optimizer.step()
        assert all(one.grad is None for one in nn.Module.parameters(model))
    model[4].bias.grad = torch.full((3,), 2.0)
    optimizer.wait_for_updates()
    equal(model[4].bias.grad, torch.full((3,), 2.0))


def check_steps_as_a_whole():
    """What needs all gradients at once: clipping, closures and hooks."""
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap_forward=model)
    seen = []
    hooked = version() >= (2, 0)
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        if step == 2:
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()
        elif step == 3:
            optimizer.step(lambda: loss_of(model, batch(step, hvd.rank())))
        else:
            optimizer.step()
        assert is_ahead(optimizer) is False or step in (1, 5) or step == 4 and not hooked, step
        if step == 3 and hooked:
            handle = optimizer.register_step_post_hook(lambda *_: seen.append(1))
        if step == 4 and hooked:
            handle.remove()
    assert seen == [1] * hooked


def check_faults():
    model = network()
    optimizer = sgd(model.parameters())
    for wrong in ("model", model.parameters(), torch.jit.script(nn.Linear(2, 2))):
        assert "overlap_forward" in raises(TypeError, hvd.DistributedOptimizer, optimizer, overlap_forward=wrong)
    assert "no parameter" in raises(ValueError, hvd.DistributedOptimizer, optimizer, overlap_forward=network())
    assert "LBFGS" in raises(ValueError, hvd.DistributedOptimizer, torch.optim.LBFGS(model.parameters()), overlap_forward=model)

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)
    assert "Own" in raises(ValueError, hvd.DistributedOptimizer, Own(model.parameters(), lr=0.1), overlap_forward=model)
    for arguments in ({"op": hvd.Adasum}, {"compression": hvd.DGC()}):
        assert "overlap_forward" in raises(ValueError, hvd.DistributedOptimizer, optimizer, overlap_forward=model, **arguments)


def check_what_is_outstanding_at_shutdown():
    """The last check, behind which the ranks begin anew."""
    if hvd.size() == 1:
        return
    model, optimizer, reference = outstanding_step()
    hvd.shutdown()
    same(model, reference)
    hvd.init()
    for step in range(3, 6):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
    hvd.shutdown()
    hvd.init()


def check_a_step_that_other_ranks_do_not_make_is_told_at_shutdown():
    if hvd.size() == 1:
        return
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap_forward=model)
    is_ahead_of_others = hvd.rank() == 0
    for step in range(2 + is_ahead_of_others):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        hvd.shutdown()
    assert any("values of before the last step" in str(one.message) for one in said) == is_ahead_of_others, said
    hvd.init()


if __name__ == "__main__":
    run(globals(), sys.argv[1:])
