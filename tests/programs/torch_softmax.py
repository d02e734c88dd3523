"""ShardedSoftmax: every rank also classifies the joined batch alone, in fp64, which must give the same."""
import sys

import torch
from torch.nn import functional

import aiacc.torch as hvd
from torch_checks import raises, run


def near(one, other, tolerance):
    """Relative to the largest."""
    one, other = one.detach().double(), other.detach().double()
    assert one.shape == other.shape and (one.numel() == 0 or float((one - other).abs().max()) <= tolerance * max(1e-3, float(other.abs().max()))), \
        float((one - other).abs().max())


def sizes():
    """Ranks have batches of different sizes; the last of several has an empty one."""
    return [3 + rank if rank == 0 or rank < hvd.size() - 1 else 0 for rank in range(hvd.size())]


def reference(x, w, labels, margin, size, scale):
    if margin is None:
        return functional.cross_entropy(x @ w.t() * scale, labels)
    logits = functional.normalize(x) @ functional.normalize(w).t()
    own = logits[torch.arange(len(labels)), labels]
    moved = own - size if margin == "cos" else torch.cos(torch.acos(own) + size)
    logits = logits.clone()
    logits[torch.arange(len(labels)), labels] = moved
    return functional.cross_entropy(logits * scale, labels)


def compare(margin=None, size=0.3, scale=1.0, classes=11, dtype=torch.float32, tolerance=1e-6, labels=None, **keywords):
    torch.manual_seed(4)
    parts = [torch.randn(size_of, 6, dtype=dtype) for size_of in sizes()]
    whole_weight = torch.randn(classes, 6, dtype=dtype)
    all_labels = torch.randint(0, classes, (sum(sizes()),)) if labels is None else torch.full((sum(sizes()),), labels)
    x, w = torch.cat(parts).double().requires_grad_(), whole_weight.double().requires_grad_()
    expected = reference(x, w, all_labels, margin, size, scale)
    expected.backward()
    module = hvd.ShardedSoftmax(6, classes, margin, size, scale, averaged=False, **keywords).to(dtype)
    shard = slice(module.first_class, module.first_class + module.classes)
    with torch.no_grad():
        module.weight.copy_(whole_weight[shard])
    own = slice(sum(sizes()[:hvd.rank()]), sum(sizes()[:hvd.rank() + 1]))
    mine = parts[hvd.rank()].clone().requires_grad_()
    loss = module(mine, all_labels[own])
    loss.backward()
    near(loss, expected, tolerance)
    near(mine.grad, x.grad[own], tolerance)
    near(module.weight.grad, w.grad[shard], tolerance)


def check_equals_one_process():
    for classes in (11, 1, 2, 30):
        compare(classes=classes)
    compare(labels=0), compare(labels=10)
    compare(dtype=torch.float64, tolerance=1e-12)


def check_margins():
    for margin in ("arc", "cos"):
        compare(margin, dtype=torch.float64, scale=64.0, tolerance=1e-12)
        compare(margin, scale=8.0, tolerance=5e-6)


def check_large_logits():
    compare(scale=1e4, dtype=torch.float64, tolerance=1e-11)


def check_sampling():
    compare(sample_rate=0.999999, classes=2)  # one class is wanted, and all labels are in
    torch.manual_seed(5)
    module = hvd.ShardedSoftmax(4, 400, sample_rate=0.1, seed=3)
    labels = torch.tensor([0, 399, 7])
    module(torch.randn(3, 4), labels).backward()
    used = (module.weight.grad != 0).any(1).nonzero().flatten() + module.first_class
    mine = [label for label in labels.tolist() if module.first_class <= label < module.first_class + module.classes]
    assert set(mine) <= set(used.tolist()) and len(used) == max(len(mine), int(0.1 * module.classes))


class ArcMargin:
    """As InsightFace's: the cosines are changed in place, and their gradient is that of the plain ones."""

    def __init__(self, scale=8.0, size=0.3):
        self.scale, self.size = scale, size

    def __call__(self, logits, labels):
        rows = torch.where(labels != -1)[0]
        columns = labels[rows].view(-1)
        with torch.no_grad():
            logits[rows, columns] = torch.cos(logits[rows, columns].arccos() + self.size)
        return logits * self.scale


def cos_margin(logits, labels):
    own = torch.zeros_like(logits)
    rows = torch.where(labels != -1)[0]
    own[rows, labels[rows].view(-1)] = 0.2
    return (logits - own) * 16.0


def check_partial_fc_equals_one_process():
    for margin_loss, classes, fp16, tolerance in ((ArcMargin(), 11, False, 5e-6), (cos_margin, 30, False, 5e-6), (ArcMargin(), 11, True, 0.05)):
        torch.manual_seed(6)
        parts, whole_weight = [torch.randn(size_of, 6) for size_of in sizes()], torch.randn(classes, 6)
        labels = torch.randint(0, classes, (sum(sizes()),))
        x, w = torch.cat(parts).double().requires_grad_(), whole_weight.double().requires_grad_()
        cosines = (functional.normalize(x) @ functional.normalize(w).t()).clamp(-1, 1)
        expected = functional.cross_entropy(margin_loss(cosines, labels.reshape(-1, 1)), labels)
        expected.backward()
        module = hvd.PartialFC(margin_loss, 6, classes, fp16=fp16)
        shard = slice(module.first_class, module.first_class + module.classes)
        with torch.no_grad():
            module.weight.copy_(whole_weight[shard])
        own = slice(sum(sizes()[:hvd.rank()]), sum(sizes()[:hvd.rank() + 1]))
        mine = parts[hvd.rank()].clone().requires_grad_()
        loss = module(mine, labels[own].reshape(-1, 1))
        loss.backward()
        near(loss, expected, tolerance)
        near(mine.grad, hvd.size() * x.grad[own], tolerance)  # a model before it averages over the ranks
        near(module.weight.grad, w.grad[shard], tolerance)


def check_partial_fc_of_some_classes():
    """The loss is that of the classes that some rank used."""
    torch.manual_seed(7)
    whole, labels = torch.randn(3 * hvd.size(), 4), torch.randint(0, 200, (3 * hvd.size(),))
    module = hvd.PartialFC_V2(ArcMargin(), 4, 200, sample_rate=0.2)
    loss = module(whole[3 * hvd.rank():][:3], labels[3 * hvd.rank():][:3])
    loss.backward()
    weight = hvd.allgather(module.weight.detach()[module.used - module.first_class], name="weight")
    used = hvd.allgather(module.used, name="used")
    cosines = functional.normalize(whole) @ functional.normalize(weight).t()
    columns = torch.searchsorted(used, labels)
    near(loss, functional.cross_entropy(ArcMargin()(cosines, columns.reshape(-1, 1)), columns), 5e-6)
    assert len(module.used) < module.classes and (used[columns] == labels).all()
    assert (module.weight.grad[module.used - module.first_class] != 0).any(1).all()


def check_optimizers_leave_unused_classes_alone():
    for kind, settings in ((torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}), (torch.optim.Adam, {"lr": 0.1, "weight_decay": 0.01})):
        torch.manual_seed(8 + hvd.rank())
        module = hvd.ShardedSoftmax(4, 300, sample_rate=0.1, seed=3)
        optimizer = module.only_used(kind(module.parameters(), **settings))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        moved = torch.zeros_like(module.weight)  # SGD's momentum, of used rows
        for step in range(3):
            before = module.weight.detach().clone()
            states = {name: one.clone() for name, one in optimizer.state[module.weight].items() if torch.is_tensor(one) and one.dim() == 2}
            rate = optimizer.param_groups[0]["lr"]
            optimizer.zero_grad()
            module(torch.randn(3, 4), torch.randint(0, 300, (3,))).backward()
            used = torch.zeros(module.classes, dtype=torch.bool)
            used[module.used - module.first_class] = True
            optimizer.step(), schedule.step()
            gradient = module.weight.grad
            assert gradient.shape == module.weight.shape and not used.all()
            assert torch.equal(module.weight.detach()[~used], before[~used]) and (module.weight.detach()[used] != before[used]).any(1).all()
            for name, one in optimizer.state[module.weight].items():
                if torch.is_tensor(one) and one.dim() == 2:
                    assert one.shape == module.weight.shape and torch.equal(one[~used], states.get(name, torch.zeros_like(one))[~used])
            if kind is torch.optim.SGD:
                moved[used] = 0.9 * moved[used] + gradient[used] + 0.01 * before[used]
                near(module.weight.detach()[used], before[used] - rate * moved[used], 1e-6)
    assert "does not have the weight" in raises(ValueError, module.only_used, torch.optim.SGD([torch.zeros(1)], lr=0.1))


def check_partial_fc_tells_an_optimizer_that_it_is_given():
    for kind in (torch.optim.SGD, torch.optim.Adam):
        torch.manual_seed(9 + hvd.rank())
        module = hvd.PartialFC(ArcMargin(), 4, 300, sample_rate=0.1)
        optimizer = kind(module.parameters(), lr=0.1, weight_decay=0.01)
        for _ in range(3):
            before = module.weight.detach().clone()
            optimizer.zero_grad()
            module(torch.randn(3, 4), torch.randint(0, 300, (3, 1)), optimizer).backward()
            optimizer.step()
            changed = (module.weight.detach() != before).any(1).nonzero().flatten() + module.first_class
            assert torch.equal(changed, module.used), (changed, module.used)


def check_averaged():
    torch.manual_seed(2)
    whole = torch.randn(2 * hvd.size(), 3)
    labels = torch.arange(2 * hvd.size()) % 4
    gradients = []
    for averaged in (False, True):
        torch.manual_seed(1)
        module = hvd.ShardedSoftmax(3, 4, averaged=averaged)
        mine = whole[2 * hvd.rank():][:2].clone().requires_grad_()
        module(mine, labels[2 * hvd.rank():][:2]).backward()
        gradients.append(mine.grad)
    near(gradients[1], gradients[0] * hvd.size(), 1e-6)


def check_a_rank_that_has_joined():
    """The others raise, and everything goes on when all have joined."""
    size, rank = hvd.size(), hvd.rank()
    if size == 1:
        return
    module = hvd.ShardedSoftmax(3, 4)
    for callers in (size - 1, 1):
        given = torch.randn(2, 3), torch.zeros(2, dtype=torch.int64)
        if rank < callers:  # the others have joined
            assert "ShardedSoftmax while a rank has joined" in raises(hvd.HorovodInternalError, module, *given)
            near(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(callers)), 0)
        hvd.join()
        module(*given).backward()


def check_bad_inputs():
    module = hvd.ShardedSoftmax(3, 4)
    assert "give N x 3 and N" in raises(ValueError, module, torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    assert "classes are 0 to 3" in raises(ValueError, module, torch.zeros(2, 3), torch.full((2,), 4))
    assert "'arc' or 'cos'" in raises(ValueError, hvd.ShardedSoftmax, 3, 4, "arcs")
    assert "sample_rate is 0" in raises(ValueError, hvd.ShardedSoftmax, 3, 4, sample_rate=0)
    assert "CombinedMarginLoss" in raises(ValueError, hvd.PartialFC, None, 3, 4)
    module(torch.randn(2, 3), torch.zeros(2, dtype=torch.int64))  # nothing is over


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
