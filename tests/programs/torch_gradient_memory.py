"""Whose memory the gradients of a DistributedOptimizer are in while they are reduced, and afterwards. What it computes is checked by
torch_optimizer.py."""
import hang_report

hang_report.after(250)

import sys
import warnings

import torch
from torch import nn

import aiacc.torch as hvd
from aiacc._horovod.exceptions import HorovodInternalError
from torch_checks import close, raises, run
from torch_optimizer import batch, joined, loss_of, same, sgd, train


def wide(seed=1):
    """The third layer's gradient has more than 256 KiB."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 3))


class ThroughViews(nn.Module):
    """Gradients of `first` and `second` are one memory, which the gradient of the layer is made of afterwards."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(300, 300)
        self.first, self.second = (nn.Parameter(torch.zeros(300 * 300)) for _ in range(2))

    def forward(self, x):
        return self.layer(x) + self.first.view(300, 300) + self.second.view(300, 300)


def check_gradients_that_share_memory_are_not_reduced_there():
    torch.manual_seed(1)
    model = ThroughViews()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(), op=hvd.Sum)
    for step in range(6):
        torch.manual_seed(step)
        both = [(torch.randn(300, 300), torch.randn(300, 300)) for _ in range(hvd.size())]
        optimizer.zero_grad()
        x, weight = both[hvd.rank()]
        (model(x) * weight).sum().backward()
        optimizer.synchronize()
        for name, one in model.named_parameters():
            with_x = name == "layer.weight"
            of_all = sum(weight.T @ x if with_x else weight for x, weight in both)
            wanted = of_all.sum(0) if name == "layer.bias" else of_all.reshape(one.shape)
            assert torch.allclose(one.grad, wanted, rtol=1e-3, atol=1e-2), (step, name, (one.grad - wanted).abs().max())


def check_what_is_being_reduced_keeps_its_memory_when_a_second_backward_is_refused():
    if hvd.size() == 1:
        return  # nobody is waited for
    model = wide()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.step()
    optimizer.zero_grad()
    others = []
    if hvd.rank() == 0:
        loss_of(model, batch(1, 0)).backward()
        optimizer.load_state_dict(optimizer.state_dict())  # which forgets what was submitted
        optimizer.zero_grad()
        again = loss_of(model, batch(1, 0))
        refused = raises(HorovodInternalError, again.backward)
        assert "submitted" in refused, refused
        for one in model.parameters():
            one.grad = None
        others = [torch.zeros(300, 300) for _ in range(8)]
    hvd.barrier()
    if hvd.rank() != 0:
        loss_of(model, batch(1, hvd.rank())).backward()
        optimizer.synchronize()
    hvd.barrier()
    assert all((one == 0).all() for one in others)


def check_long_gradients_stay_where_backward_wrote_them_on_hosts_of_one_rank():
    model, reference = wide(), wide()
    plain = sgd(reference.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for step in range(10):
        optimizer.zero_grad(set_to_none=step % 4 != 3)  # otherwise backward adds to what is there
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        plain.zero_grad()
        loss_of(reference, joined(step)).backward()
        plain.step()
        same(model, reference, 1e-4)
        if hvd.size() == 1:
            continue
        slots = optimizer._reducer.slots
        inside = [one.grad.data_ptr() == slots[one].view.data_ptr() for one in model.parameters()]
        stays = hasattr(torch._C, "_storage_Use_Count") and hvd.local_size() == 1
        assert inside == [one.numel() < 65536 or not stays for one in model.parameters()], (step, inside)
    if hvd.size() > 1 and stays:
        short = sum(one.numel() for one in model.parameters() if one.numel() < 65536)
        stats = optimizer._reducer.engine.stats()
        assert stats["packed_bytes"] == 0 and short < stats["bytes"], stats


def check_gradients_live_in_shared_memory():
    if hvd.size() == 1:
        return
    model, optimizer = train(sgd)
    places = [one.grad.data_ptr() for one in model.parameters()]
    for keywords in ({"set_to_none": True}, {"set_to_none": False}):
        optimizer.zero_grad(**keywords)
        loss_of(model, batch(9, hvd.rank())).backward()
        assert [one.grad.data_ptr() for one in model.parameters()] == places
        optimizer.step()
    spread = max(places) - min(places)
    assert spread < 64 * 1024, f"gradients of a small model lie {spread} bytes apart"


def check_gradients_with_a_history_leave_none_in_the_memory_where_they_are_reduced():
    """As of a backward pass that can be differentiated itself."""
    if hvd.size() == 1:
        return
    model, reference = wide(), wide()
    plain = sgd(reference.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for step in range(4):
        optimizer.zero_grad()
        with warnings.catch_warnings():  # torch warns of the cycle of references, which the optimizer cuts
            warnings.simplefilter("ignore")
            loss_of(model, batch(step, hvd.rank())).backward(create_graph=True)
        optimizer.step()
        plain.zero_grad()
        loss_of(reference, joined(step)).backward()
        plain.step()
        same(model, reference, 1e-4)
        assert not any(slot.view.requires_grad for slot in optimizer._reducer.slots.values()), step


def check_gradients_outlive_shutdown():
    model, _ = train(sgd)
    before = [one.grad.clone() for one in model.parameters()]
    hvd.shutdown()
    for one, other in zip(model.parameters(), before):
        close(one.grad, other)
    hvd.init()


def check_a_model_whose_memory_changes_between_steps():
    """As when it moves to a device or to another type: torch changes the memory of its gradients, too."""
    for change in (torch.nn.Module.double, lambda model: [setattr(one, "data", one.data.clone()) or setattr(one.grad, "data", one.grad.data.clone())
                                                          for one in model.parameters()]):
        model = torch.nn.Linear(2, 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        for step in range(3):
            model(torch.full((1, 2), hvd.rank() + 1.0, dtype=model.weight.dtype)).sum().backward()
            optimizer.step()
            average = (hvd.size() + 1) / 2
            assert torch.allclose(model.weight.grad, torch.full_like(model.weight, average)), (step, model.weight.grad)
            if step == 0:
                change(model)
            optimizer.zero_grad(set_to_none=step == 1)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
