"""Models whose forward pass begins while the step before it goes on: what they do with parameters, and what is done with them."""
import hang_report

hang_report.after(250)

import copy
import sys
import warnings

import torch
from torch import nn

import aiacc.torch as hvd
from torch_checks import close, raises, run, same, version
from torch_optimizer import batch, joined, loss_of, network, sgd
from torch_overlap import is_ahead, outstanding_step, train, train_both


class Attends(nn.Module):
    """Its attention uses a layer's parameters without calling it; the embedding's are used twice, once by a function; one is its own, another
    nobody's."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.inner = nn.ModuleDict({"norm": nn.LayerNorm(8), "unused": nn.Linear(2, 2), "conditional": nn.Linear(8, 8)})
        self.place = nn.Parameter(torch.randn(5, 8))
        self.calls = 0

    def forward(self, words):
        self.calls += 1
        x = self.embedding(words) + self.place
        x = self.inner["norm"](x + self.attention(x, x, x, need_weights=False)[0])
        if self.calls % 2 == 0:
            x = self.inner["conditional"](x)
        return nn.functional.linear(x.mean(1), self.embedding.weight[:3])


def words(step, rank):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, 9, (4, 5), generator=made), torch.randint(0, 3, (4,), generator=made)


def all_words(step):
    parts = [words(step, rank) for rank in range(hvd.size())]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def check_modules_that_use_parameters_in_their_own_ways():
    torch.manual_seed(3)
    model = Attends()
    model.inner["unused"].requires_grad_(False)
    train(lambda parameters: torch.optim.SGD(parameters, lr=0.1), model, (words, all_words))  # zeros of what is not used change nothing
    parametrized = network()
    nn.utils.parametrizations.spectral_norm(parametrized[2]).eval()  # with the vectors that it has
    train(sgd, parametrized, zero=lambda model, optimizer: model.zero_grad())


def check_weights_that_hooks_make_of_parameters():
    model, reference = network(), network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in (model, reference):
            nn.utils.weight_norm(one[0])
    optimizer, plain = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap_forward=model), sgd(reference.parameters())
    train_both([(model, optimizer), (reference, plain)])


def check_rows_of_embeddings():
    torch.manual_seed(3)

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.EmbeddingBag(9, 4, mode="sum", sparse=True)
            self.last = nn.Linear(4, 3)

        def forward(self, words):
            return self.last(self.rows(words))
    train(lambda parameters: torch.optim.SGD(parameters, lr=0.1), Bag(), (words, all_words))


def check_two_models_of_which_one_is_used_in_the_steps_of_both():
    torch.manual_seed(4)
    made = [nn.Linear(6, 6), network()]
    alone = copy.deepcopy(made)
    optimizers = [hvd.DistributedOptimizer(sgd(one.parameters()), one.named_parameters(), overlap_forward=one) for one in made]
    plain = [sgd(one.parameters()) for one in alone]
    for step in range(6):
        for (first, second), both, data in ((made, optimizers, batch(step, hvd.rank())), (alone, plain, joined(step))):
            both[1].zero_grad()
            loss_of(second, (first(data[0]).detach(), data[1])).backward()
            both[1].step()
            both[0].zero_grad()
            with torch.no_grad():
                first(data[0])
            for parameter in second.parameters():
                parameter.requires_grad_(False)
            loss_of(nn.Sequential(first, second), data).backward()
            for parameter in second.parameters():
                parameter.requires_grad_(True)
            both[0].step()
    for one, other in zip(made, alone):
        same(one, other, 1e-4)


def check_evaluation_uses_parameters_without_calls():
    """In evaluation, TransformerEncoderLayer gives the parameters of its parts to one function, and calls none of them."""
    if hvd.size() == 1:
        return
    torch.manual_seed(5)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap_forward=model)
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(6))
    for step in range(3):
        optimizer.zero_grad()
        (model(x) * (hvd.rank() + 1)).pow(2).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            found = model(x)
            optimizer.wait_for_updates()
            close(found, model(x))
        model.train()


def check_a_part_that_does_not_train_waits_for_its_own_parameters():
    if hvd.size() == 1:
        return
    model, optimizer, _ = outstanding_step()
    ahead = is_ahead(optimizer)
    model[1].eval()(torch.zeros(1))
    assert is_ahead(optimizer) == ahead
    model[2].eval()(torch.zeros(1, 16))
    model.eval()(torch.zeros(1, 6))
    assert not is_ahead(optimizer)


def check_what_forward_passes_do_to_operations_is_not_done_to_updates():
    if not hasattr(torch.optim, "Adafactor"):
        return
    model, reference = network(), network()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adafactor(model.parameters()), model.named_parameters(), overlap_forward=model)
    plain = hvd.DistributedOptimizer(torch.optim.Adafactor(reference.parameters()), reference.named_parameters())
    for step in range(5):
        for its, one in ((model, optimizer), (reference, plain)):
            one.zero_grad()
            with torch.autocast("cpu"):
                loss_of(its, batch(step, hvd.rank())).backward()
            one.step()
    same(model, reference, 1e-7)


def check_inference_between_steps():
    def look(step, model, optimizer):
        optimizer.param_groups[0]["momentum"] = 0.9  # whose state begins within it
        with torch.inference_mode(step < 3):
            model(torch.zeros(2, 6))
    train(lambda parameters: torch.optim.SGD(parameters, lr=0.1), each_step=look)


def check_parameters_that_no_module_has_are_updated_by_the_step():
    model, scale = network(), nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*model.parameters(), scale], lr=0.1), overlap_forward=model)
    expected = torch.ones(3)
    for step in range(4):
        optimizer.zero_grad()
        (model(batch(step, hvd.rank())[0]) * 0 + scale * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        expected -= 0.1 * 4 * (hvd.size() + 1) / 2
        close(scale.detach(), expected, 1e-5)


class Registered(nn.Sequential):
    """A class of users' that wants a keyword of those below it, and copies itself."""

    def __init_subclass__(cls, *, kind):
        cls.kind = kind

    def __deepcopy__(self, memo):
        made = type(self)(*[copy.deepcopy(one, memo) for one in self])
        made.copied = True
        return made


def check_classes_of_models():
    made = network()
    model = Registered(*made)
    train(sgd, model)
    assert type(copy.deepcopy(model)) is Registered and copy.deepcopy(model).copied and isinstance(model, Registered)
    model = network()
    train(sgd, model)
    model.__class__ = type("InFront", (type(model),), {})  # as functions of torch put it there
    made = copy.deepcopy(model)
    assert type(made) is type(model)
    same(made, model, 0)


def check_a_parameter_that_is_read_too_early_is_found():
    """Its module has been called in other steps, and this one uses it without a call."""
    if hvd.size() == 1:
        return
    model, optimizer, _ = outstanding_step()
    first = model[0]
    x = torch.zeros(1, 6)
    if is_ahead(optimizer):
        loss = model[2:](nn.functional.linear(x.requires_grad_(), first.weight)).sum()
        text = raises(RuntimeError, loss.backward)
        assert "modified by an inplace operation" in text, text
    optimizer.wait_for_updates()
    model, optimizer, _ = outstanding_step()
    if is_ahead(optimizer):
        text = raises(RuntimeError, (model[4].bias * 2).sum().backward)
        assert "'4.bias'" in text and "wait_for_updates()" in text, text
    optimizer.wait_for_updates()


def check_tracing_and_transforms_want_updated_parameters():
    if hvd.size() == 1 or version() < (2, 0):
        return
    model, optimizer, _ = outstanding_step()
    if is_ahead(optimizer):
        for call in (lambda: torch.jit.trace(model, torch.ones(1, 6)),
                     lambda: torch.func.grad(lambda x: model(x).sum())(torch.ones(1, 6))):
            assert "wait_for_updates()" in raises(RuntimeError, call)
        assert is_ahead(optimizer)
    optimizer.wait_for_updates()
    torch.func.grad(lambda x: model(x).sum())(torch.ones(1, 6))


if __name__ == "__main__":
    run(globals(), sys.argv[1:])
