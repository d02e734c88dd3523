"""Exchanges with one node at a time between LocalSGD's averages, beside a simulation of all ranks in each."""
import hang_report

hang_report.after(250)

import itertools

import torch

import aiacc
import aiacc.torch as hvd
from aiacc._horovod import handles, named_table
from aiacc.torch import gossip
from local_sgd_simulation import Simulated, adam, all_equal, nesterov, train
from rank_checks import raises
from torch_checks import close, equal, run
from torch_optimizer import batch, loss_of, network, sgd


def gossiping(every, delay=0, nodes=None):
    """A simulator of it. `nodes`: ranks of each."""
    class Gossiping(Simulated):
        def __init__(self, *words, **named):
            super().__init__(*words, **named)
            self.nodes = nodes or [[rank] for rank in range(hvd.size())]
            self.rounds = gossip.rounds_of(range(len(self.nodes)))
            self.exchanging = {}

        def begins(self, number):
            return (self.at - self.warmup - self.offset(number)) % self.period == 0

        def offset(self, number):
            return number * self.period // len(self.parts)

        def turn_of(self, at):
            """Which fragment is exchanged then, if any."""
            count, late = divmod(at - self.warmup, every)
            turn = (count - 1) % len(self.parts)
            return None if late or (at - self.warmup - self.offset(turn)) % self.period < max(self.delay, 1) else turn

        def before_averages(self):
            for number in list(self.exchanging):
                if self.at >= self.exchanging[number][0] + delay or self.begins(number):
                    self.end_exchange(number)

        def after_averages(self):
            turn = self.turn_of(self.at)
            if turn is None or not self.rounds:
                return
            index = sum(self.turn_of(before) == turn for before in range(self.warmup + 1, self.at))
            self.exchanging[turn] = (self.at, self.rounds[index % len(self.rounds)],
                                     [[tensors[i].detach().clone() for i in self.parts[turn]] for tensors in self.tensors])
            if delay == 0:
                self.end_exchange(turn)

        @torch.no_grad()
        def end_exchange(self, number):
            _, edges, sent = self.exchanging.pop(number)
            for edge in edges:
                ranks = self.nodes[edge.one] + self.nodes[edge.other]
                share = gossip.share(edge.weight, len(self.nodes[edge.one]), len(self.nodes[edge.other]))
                for place, i in enumerate(self.parts[number]):
                    mean = sum(sent[rank][place].double() for rank in ranks) / len(ranks)
                    for rank in ranks:
                        self.tensors[rank][i].add_(share * (mean - sent[rank][place]))
    return Gossiping


def check_who_exchanges_with_whom():
    for nodes in range(34):
        rounds = gossip.rounds_of(range(nodes))
        values = torch.eye(nodes, dtype=torch.float64)
        for edges in rounds:
            ends = [end for edge in edges for end in (edge.one, edge.other)]
            assert edges and len(set(ends)) == len(ends) and set(ends) <= set(range(nodes)) and all(0 < edge.weight < 1 for edge in edges)
            for one, other, weight in edges:
                values[one], values[other] = (1 - weight) * values[one] + weight * values[other], (1 - weight) * values[other] + weight * values[one]
        close(values, torch.full_like(values, 1 / max(nodes, 1)), 1e-12)  # all have the average of all
        log2 = max(nodes, 1).bit_length() - 1
        assert len(rounds) == (log2 if nodes & (nodes - 1) == 0 else 2 * log2 + 1), (nodes, len(rounds))


def check_hosts_of_several_ranks():
    """Which ranks average in each round, as rank 3 has it."""
    def seen(nodes, own_rank):
        some = hvd.ProcessSet(range(11))
        some._register(1, own_rank)
        made = gossip.Exchanges(nodes, some)
        return [None if one is None else (one[0].ranks, round(one[1], 6)) for one in map(made.of, range(2 * len(made.rounds)))], len(some._inner)

    four = [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert seen(four, 3) == ([([0, 1, 2, 3], 1.0), ([2, 3, 6, 7], 1.0)] * 2, 2)
    three = [[0, 4], [1], [2, 3]]
    assert seen(three, 3) == ([None, ([0, 2, 3, 4], round(4 / 3, 6)), None] * 2, 1)
    assert seen(three, 1) == ([([0, 1, 4], 1.0), None, ([0, 1, 4], 1.0)] * 2, 1)
    assert seen([[0, 1, 2, 3]], 3) == ([], 0)
    for sizes in ([1, 1, 1, 1, 7], [7, 1, 1], [3, 1, 1, 1], [2, 5, 3]):  # nobody leaves what lies between all, and the mean of all ranks stays
        values = torch.randn(len(sizes), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        many = torch.tensor(sizes, dtype=torch.float64)
        least, most, mean = values.min(), values.max(), (values * many).sum() / many.sum()
        for edge in (edge for edges in 4 * gossip.rounds_of(range(len(sizes))) for edge in edges):
            ends = [edge.one, edge.other]
            middle = (values[ends] * many[ends]).sum() / many[ends].sum()
            values[ends] += gossip.share(edge.weight, sizes[edge.one], sizes[edge.other]) * (middle - values[ends])
            assert least - 1e-12 <= values.min() and values.max() <= most + 1e-12, (sizes, values)
            close((values * many).sum() / many.sum(), mean, 1e-12)
        close(values, mean.expand_as(values), 0.1)


def check_each_fragment_has_all_rounds():
    for every, fragments, period, delay in itertools.product(range(1, 5), range(1, 5), range(2, 17), range(3)):
        if every >= period or fragments > period or delay >= period:
            continue
        offsets = [i * period // fragments for i in range(fragments)]
        try:
            turns = [hvd.Gossip(every).turns(i, fragments, period, offsets[i], delay) for i in range(fragments)]
        except ValueError as refused:
            assert "there is always an average when fragment" in str(refused)
            continue
        for i, one in enumerate(turns):
            numbers = {at: one.number(at) for at in range(1, 200) if one.number(at) is not None}
            assert list(numbers.values()) == list(range(len(numbers))) and numbers, (every, fragments, period, delay)
            assert all((at - offsets[i]) % period >= max(delay, 1) and at % every == 0 and at // every % fragments == (i + 1) % fragments for at in numbers)


def check_exchanges_are_those_of_the_algorithm():
    for every, delay, arguments in ((1, 0, {}), (2, 0, {"warmup_steps": 3}), (1, 1, {}), (2, 1, {"fragments": 2}), (1, 0, {"fragments": 3, "delay": 2}),
                                    (1, 1, {"fragments": 2, "delay": 1, "outer_optimizer": nesterov}), (3, 2, {"outer_optimizer": nesterov})):
        for make in (sgd, adam):
            model, optimizer, _ = train(make, 17, simulator=gossiping(every, delay), period=7,
                                        gossip=hvd.Gossip(every, nodes="ranks", delay=delay), **arguments)
            optimizer.average()
            all_equal(model)
            assert optimizer.steps_since_average == 0


def check_without_steps_all_soon_have_the_average_of_all():
    model = torch.nn.Linear(3, 2)
    for one in model.parameters():
        torch.nn.init.constant_(one, 2.0 ** hvd.rank())
    optimizer = hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=0.0), 100, gossip=hvd.Gossip(nodes="ranks"))
    rounds = len(gossip.rounds_of(range(hvd.size())))
    for _ in range(rounds):
        optimizer.step()
    mean = sum(2.0 ** rank for rank in range(hvd.size())) / hvd.size()
    for one in model.parameters():
        close(one.detach(), torch.full_like(one, mean))
    assert optimizer.steps_since_average == rounds + 1
    optimizer.average()
    all_equal(model)


def check_in_16_bits():
    for compression, digits in ((hvd.Compression.fp16, 11), (hvd.Compression.bf16, 8)):
        model = torch.nn.Linear(40, 50)
        with torch.no_grad():
            for one in model.parameters():
                one.copy_(torch.rand(one.shape, generator=torch.Generator().manual_seed(1)) * 100)
        start = [one.detach().clone() for one in model.parameters()]
        optimizer = hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=1.0), 20, warmup_steps=1,
                                 gossip=hvd.Gossip(nodes="ranks", compression=compression, delay=0))
        exact = hvd.LocalSGD(torch.optim.SGD([one.requires_grad_() for one in (one.clone() for one in start)], lr=1.0), 20, warmup_steps=1,
                             gossip=hvd.Gossip(nodes="ranks"))
        mine, theirs = list(model.parameters()), exact.param_groups[0]["params"]
        optimizer.average()  # what changes are of
        exact.average()
        for step in range(1, 13):
            for parameters, one in ((mine, optimizer), (theirs, exact)):
                for place, parameter in enumerate(parameters):
                    parameter.grad = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(100 * step + 10 * hvd.rank() + place))
                one.step()
            # Changes are up to `step`, of parameters of 100: an error is one of the changes, and in fp16 none of parameters would be as small.
            for one, other in zip(mine, theirs):
                far = (one - other).abs().max().item()
                assert far <= step * step * 2.0 ** -digits, (far, step)
        assert hvd.size() < 2 or far > 1e-5, far  # but for the first one of a pair, they have travelled in 16 bits


def check_before_the_first_average_parameters_travel_whole():
    train(sgd, 8, simulator=gossiping(1), period=9, gossip=hvd.Gossip(nodes="ranks", compression=hvd.Compression.bf16))


def check_the_ranks_of_a_host_are_one_node():
    nodes = {}
    for rank, host in enumerate(hvd.allgather_object(aiacc.host_index())):
        nodes.setdefault(host, []).append(rank)
    nodes = list(nodes.values())
    train(sgd, 15, simulator=gossiping(1, nodes=nodes), period=6, gossip=hvd.Gossip())
    sets = {tuple(ranks): hvd.add_process_set(ranks) for ranks in nodes if len(ranks) < hvd.size()}
    mine = next((one for ranks, one in sets.items() if hvd.rank() in ranks), hvd.global_process_set)
    model = network()
    inner = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), process_set=mine)
    optimizer = hvd.LocalSGD(inner, 6, gossip=hvd.Gossip(compression=hvd.Compression.fp16))
    for step in range(15):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        for one in model.parameters():
            found = hvd.allgather(one.detach().reshape(1, -1), process_set=mine)
            for other in found[1:]:
                equal(found[0], other)
    for one in sets.values():
        hvd.remove_process_set(one)


def check_nobody_waits_for_more_than_one_other():
    """Of four, two end their step before the other two have begun it."""
    if hvd.size() != 4:
        return
    model = network()
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 100, warmup_steps=1, gossip=hvd.Gossip(every=1, nodes="ranks"))
    told = bytearray(1)
    optimizer.step()  # of all
    if hvd.rank() >= 2:
        aiacc.WORLD.recv(told, hvd.rank() - 2, tag=7)
    optimizer.step()  # 0 and 1, and 2 and 3
    if hvd.rank() < 2:
        aiacc.WORLD.send(told, hvd.rank() + 2, tag=7)
    optimizer.average()
    all_equal(model)


def check_a_set_of_the_program_of_the_same_ranks():
    """Operations of both go on at a time, and ranks begin with either."""
    if hvd.size() < 2:
        return
    sets = [hvd.add_process_set([one, other]) for one, other in itertools.combinations(range(hvd.size()), 2) if hvd.size() > 2]
    model = network()
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 20, gossip=hvd.Gossip(nodes="ranks", delay=1))
    for step in range(9):
        def start():
            return [hvd.allreduce_async(torch.ones(1000) * hvd.rank(), op=hvd.Sum, name=f"of two {step}", process_set=one) for one in sets if one.included()]
        started = start() if hvd.rank() % 2 else []
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        started = started or start()
        for handle, one in zip(started, [one for one in sets if one.included()]):
            close(hvd.synchronize(handle), torch.full((1000,), float(sum(one.ranks))))
    optimizer.average()
    all_equal(model)
    for one in sets:
        hvd.remove_process_set(one)


def check_ranks_that_have_joined_are_left_out():
    """Epochs of unlike lengths, with exchanges on their way at their ends."""
    for every, delay in ((1, 0), (2, 0), (1, 1), (2, 2)):
        model = torch.nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(8)
        optimizer = hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=1.0), 50, gossip=hvd.Gossip(every, nodes="ranks", delay=delay))
        for _ in range(3):
            for _ in range(5 + 3 * (hvd.rank() % 2)):
                model.weight.grad = torch.zeros(1, 2)
                optimizer.step()
            hvd.join()
            close(model.weight.detach(), torch.full((1, 2), 8.0))  # a rank without data has no part in it
        assert optimizer.local_step == 3 * (8 if hvd.size() > 1 else 5)
        model.weight.grad = torch.full((1, 2), float(hvd.rank()))
        optimizer.step()
        optimizer.average()
        close(model.weight.detach(), torch.full((1, 2), 8 - (hvd.size() - 1) / 2))
        assert not handles._pending  # what was on its way at a join is not kept


def check_optimizers_share_groups():
    def train_a_bit():
        train(sgd, 4, simulator=gossiping(1), period=9, gossip=hvd.Gossip(nodes="ranks"))
        return len(hvd.global_process_set._inner)
    groups = train_a_bit()
    assert groups == train_a_bit() == len({one.ranks[0] + one.ranks[1] for one in hvd.global_process_set._inner.values()})


def check_engines_that_are_replaced():
    """As those of large models are, whose tensors are more than an engine keeps."""
    before, named_table._MOST_TENSORS = named_table._MOST_TENSORS, 2
    try:
        for delay in (0, 1):
            _, optimizer, _ = train(sgd, 60, simulator=gossiping(1, delay), period=31, fragments=3, gossip=hvd.Gossip(nodes="ranks", delay=delay))
            optimizer.average()
            hvd.join()
        replaced = [one._named(hvd.mpi_ops._tensors)._epoch for one in hvd.global_process_set._inner.values()]
        assert all(epoch > 1 for epoch in replaced), replaced  # one is of the join
    finally:
        named_table._MOST_TENSORS = before


def check_a_checkpoint_that_one_rank_loads():
    model = network()
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 5, gossip=hvd.Gossip(nodes="ranks", compression=hvd.Compression.fp16))

    def some(steps):
        for step in range(steps):
            optimizer.zero_grad()
            loss_of(model, batch(step, hvd.rank())).backward()
            optimizer.step()
    some(7)
    if hvd.rank() == 0:
        optimizer.load_state_dict(optimizer.state_dict())  # it knows no average then, where the others do
    some(2)
    optimizer.average()
    all_equal(model)
    kept = optimizer.state_dict()
    some(3)
    if hvd.rank() == 0:
        optimizer.load_state_dict(kept)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.local_step == 9
    some(4)
    optimizer.average()
    all_equal(model)


def check_in_another_world():
    model = network()
    optimizer = hvd.LocalSGD(sgd(model.parameters()), 6, gossip=hvd.Gossip(nodes="ranks", delay=1))
    for world in range(2):
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, batch(step, hvd.rank())).backward()
            optimizer.step()
        hvd.shutdown()
        hvd.init()
    optimizer.average()
    all_equal(model)


def check_what_is_refused():
    model = network()
    assert "every is 0: it is 1 or more" in raises(ValueError, hvd.Gossip, 0)
    assert "delay is 2: it is 0 or more, and at most 1 (every)" in raises(ValueError, hvd.Gossip, 1, delay=2)
    assert 'nodes is \'racks\': it is "hosts" or "ranks"' in raises(TypeError, hvd.Gossip, nodes="racks")
    assert "compression is" in raises(TypeError, hvd.Gossip, compression="fp16")
    assert "every is 4: it is less than the period of averages, which is 4" in raises(ValueError, hvd.LocalSGD, sgd(model.parameters()), 4, gossip=hvd.Gossip(4))
    assert "when fragment 2 could be exchanged" in raises(ValueError, hvd.LocalSGD, sgd(model.parameters()), 6, fragments=4, gossip=hvd.Gossip(3))
    assert "gossip is" in raises(TypeError, hvd.LocalSGD, sgd(model.parameters()), 4, gossip=1)
    assert repr(hvd.Gossip(2, compression=hvd.Compression.bf16)) == "Gossip(every=2, nodes='hosts', compression=Compression.bf16, delay=0)"
    if hvd.size() > 1:
        optimizer = hvd.LocalSGD(sgd(model.parameters()), 4, gossip=hvd.Gossip(1 + (hvd.rank() == 0)))
        assert "ranks disagree about agreement 'LocalSGD'" in raises(hvd.HorovodInternalError, optimizer.step)


if __name__ == "__main__":
    import sys
    run(globals(), sys.argv[1:])
