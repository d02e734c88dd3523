"""Horovod's elastic training in a job of fixed size: the state, and what is run again after which error."""
import hang_report

hang_report.after(250)

import logging
import sys

import torch
from torch import nn

import aiacc.torch as hvd
from aiacc._horovod import basics
from aiacc.torch.elastic import ObjectState, TorchState
from aiacc.torch.elastic import state as states
from torch_checks import equal, raises, run

logging.getLogger("aiacc.elastic").setLevel(logging.ERROR)
STEPS = 6


def made():
    """A model and an optimizer with state. Ranks begin with different values."""
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return model, hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters())


def trained(fails=lambda state, tries: None, commits=2):
    """(the parameters after all steps, how often the function was run, calls of a reset callback); `fails` may raise before any step."""
    model, optimizer = made()
    state = TorchState(model, optimizer, step=0, seen=[])
    tries, resets = [], []
    state.register_reset_callbacks([lambda: resets.append((hvd.size(), len(tries)))])

    @hvd.elastic.run
    def train(state, word, *, other):
        assert (word, other) == ("word", 1)
        tries.append(state.step)
        while state.step < STEPS:
            fails(state, len(tries))
            state.optimizer.zero_grad()
            data = torch.arange(6.0).reshape(2, 3) * (1 + hvd.rank()) / (1 + state.step)
            state.model(data).sum().backward()
            state.optimizer.step()
            state.seen.append(state.step)
            state.step += 1
            if state.step % commits == 0:
                state.commit()
        return state.seen

    assert train(state, "word", other=1) == list(range(STEPS))
    return [one.detach().clone() for one in model.parameters()], tries, resets


def check_a_run_without_errors():
    parameters, tries, resets = trained()
    assert (tries, resets) == ([0], [])
    for one in parameters:
        equal(one, hvd.broadcast(one, 0))


def same_as_without_errors(fails, begins):
    expected = trained()[0]
    parameters, tries, resets = trained(fails)
    assert tries == begins and resets == [(hvd.size(), 1)], (tries, resets)
    for one, other in zip(parameters, expected):
        equal(one, other)


def check_an_error_goes_back_to_the_last_commit():
    def fails(state, tries):
        if tries == 1 and state.step == 3:
            raise hvd.HorovodInternalError("on all ranks")
    same_as_without_errors(fails, [0, 2])


def check_an_error_of_one_rank_reaches_the_others():
    for rank in {0, hvd.size() - 1}:
        def fails(state, tries):
            if tries == 1 and state.step == 5 and hvd.rank() == rank:
                raise hvd.HorovodInternalError("on one rank")
        same_as_without_errors(fails, [0, 4])


def check_ranks_that_disagree_go_on():
    if hvd.size() == 1:
        return

    def fails(state, tries):
        if tries == 1 and state.step == 1:
            hvd.allreduce(torch.ones(1 + hvd.rank()))
    same_as_without_errors(fails, [0, 0])


def check_an_error_in_the_middle_of_named_operations():
    def fails(state, tries):
        if state.step == 3:
            handle = hvd.allreduce_async(torch.ones(2), name="of all", op=hvd.Sum)
            if tries == 1 and hvd.rank() == 0:
                raise hvd.HorovodInternalError("with an operation on its way")
            equal(hvd.synchronize(handle), torch.full((2,), float(hvd.size())))
    same_as_without_errors(fails, [0, 2])


def check_an_interrupt_keeps_the_state():
    def fails(state, tries):
        if tries == 1 and state.step == 3:
            state.on_hosts_updated(1, 2)
            state.check_host_updates()
            raise AssertionError("it goes on")
    same_as_without_errors(fails, [0, 3])


def check_only_rank_0_is_asked_about_hosts():
    state = ObjectState(hvd.broadcast_object, hvd.rank, value=1)
    if hvd.rank() != 0:
        state.on_hosts_updated(5, 1)
    state.check_host_updates()
    for timestamp, result, skips in ((6, 1, True), (7, 2, False), (8, 3, False)):
        state.on_hosts_updated(timestamp, result)
        try:
            state.commit()
        except hvd.HostsUpdatedInterrupt as interrupt:
            assert interrupt.skip_sync == skips
        else:
            raise AssertionError(timestamp)
    state.check_host_updates()


def check_programs_that_look_for_messages_of_hosts():
    """Without a commit, as Horovod's own tests do."""
    state = ObjectState(hvd.broadcast_object, hvd.rank, value=1)
    assert state._host_messages.empty()
    original, basics.hosts_updated = basics.hosts_updated, lambda: 2
    try:
        assert not state._host_messages.empty()
        raises(hvd.HostsUpdatedInterrupt, state.commit)
        assert state._host_messages.empty(), "it was told once"
    finally:
        basics.hosts_updated = original
    state.commit()


def check_other_exceptions_are_the_callers():
    state = ObjectState(hvd.broadcast_object, hvd.rank, value=hvd.rank())

    @hvd.elastic.run
    def fails(state):
        assert state.value == 0  # of rank 0
        raise KeyError("mine")
    assert "mine" in raises(KeyError, fails, state)


def check_plain_attributes_go_back():
    state = ObjectState(hvd.broadcast_object, hvd.rank, batch=1, seen=[1])
    state.batch, state.seen = 2, state.seen + [2]
    state.save()
    state.seen.append(3)
    state.batch = 3
    state.restore()
    assert (state.batch, state.seen) == (2, [1, 2])
    state.seen.append(4)
    state.restore()
    assert state.seen == [1, 2]


def check_models_samplers_and_schedulers_go_back():
    model, optimizer = made()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    sampler = hvd.ElasticSampler(range(24), shuffle=False)
    state = TorchState(model, optimizer, scheduler=scheduler, sampler=sampler, other=nn.Linear(1, 1), batch=0)
    state.sync()
    equal(hvd.broadcast(model[0].weight.detach(), 0), model[0].weight.detach())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    sampler.record_batch(0, 2)
    state.batch = 1
    state.commit()
    kept = [one.clone() for one in (model[0].weight.detach(), optimizer.state[model[0].weight]["momentum_buffer"])]
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    sampler.record_batch(1, 2)
    state.restore()
    equal(model[0].weight.detach(), kept[0])
    equal(optimizer.state[model[0].weight]["momentum_buffer"], kept[1])
    assert (scheduler.last_epoch, state.batch) == (1, 1) and sampler.processed_num == 2 * hvd.size()
    state.sync()
    assert sampler.processed_indices == set(range(2 * hvd.size())) and len(sampler) == (24 - 2 * hvd.size()) / hvd.size()
    state.model = nn.Linear(1, 1)
    with torch.no_grad():
        state.model.weight.fill_(7)
    state.restore()
    assert state.model.weight.item() != 7 and state._handlers["model"].value is state.model


class Counter:
    def __init__(self, count):
        self.count = count


class CounterHandler(states.StateHandler):
    def __init__(self, value):
        self.value = value
        self.save()

    def save(self):
        self.saved = self.value.count

    def restore(self):
        self.value.count = self.saved

    def sync(self):
        self.value.count = hvd.broadcast_object(self.value.count)


def check_a_handler_of_the_users():
    before = states.get_handler_registry()
    states.set_handler_registry([(Counter, CounterHandler), *before])
    try:
        state = TorchState(counter=Counter(hvd.rank()))
        state.sync()
        assert state.counter.count == 0
        state.counter.count = 5
        state.restore()
        assert state.counter.count == 0
    finally:
        states.set_handler_registry(before)


def check_what_was_made_before_a_shutdown_works_after_init():
    model, optimizer = made()
    hvd.broadcast_parameters(model.state_dict(), 0)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3) * (1 + hvd.rank())).sum().backward()
        optimizer.step()
        equal(hvd.broadcast(model[0].weight.detach(), 0), model[0].weight.detach())
        hvd.shutdown()
        raises(ValueError, hvd.rank)
        hvd.init()


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
