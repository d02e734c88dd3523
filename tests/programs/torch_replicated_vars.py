"""ReplicatedVarsOptimizer and smooth_exponential_decay, compared with one process that trains on the joined batch."""
import hang_report

hang_report.after(250)

import sys

import torch
from torch import nn

import aiacc.torch as hvd
from torch_checks import close, raises, run


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def batch(step, rank):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(4, 6, generator=made), torch.randint(0, 2, (4,), generator=made)


def joined(step):
    parts = [batch(step, rank) for rank in range(hvd.size())]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def loss_of(model, data):
    return 10 * nn.functional.cross_entropy(model(data[0]), data[1])


def compare(clip_norm=None, loss_scale=1.0, tolerance=1e-5):
    model, reference = network(hvd.rank()), network(0)  # replicas become those of rank 0
    optimizer = hvd.ReplicatedVarsOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), clip_norm=clip_norm)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.5)
    step, norms = torch.tensor(0), []
    while step < 4:
        loss = optimizer.compute_loss(lambda: loss_of(model, batch(int(step), hvd.rank())), loss_scale=loss_scale)
        expected = loss_of(reference, joined(int(step)))
        assert len(loss.replicas) == 1 and abs(loss.mean() - expected.item()) < 1e-4
        plain.zero_grad()
        expected.backward()
        norms.append(float(nn.utils.clip_grad_norm_(reference.parameters(), clip_norm or 1e9)))
        plain.step()
        optimizer.minimize(loss, global_step=step)
    for one, other in zip(model.parameters(), reference.parameters()):
        close(one, other, tolerance)
    return norms


def check_averages_as_one_process():
    compare()


def check_clips_the_averaged_gradients():
    norm = 0.5
    assert min(compare(clip_norm=norm)) > 2 * norm, "nothing was clipped"


def check_a_scaled_loss_takes_the_same_steps():
    compare(loss_scale=1024.0)
    compare(loss_scale=128.0, clip_norm=0.5)


def check_goes_with_schedulers_and_checkpoints():
    model = network(0)
    optimizer = hvd.ReplicatedVarsOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, lambda step: hvd.smooth_exponential_decay(0.1, 2, 1.0, step, 2, 0.25))
    rates = []
    for step in range(4):
        rates.append(optimizer.optimizer.param_groups[0]["lr"])
        optimizer.minimize(optimizer.compute_loss(lambda: loss_of(model, batch(step, hvd.rank()))))
        scheduler.step()
    close(torch.tensor(rates), torch.tensor([0.1, 0.55, 1.0, 0.5]))
    optimizer.optimizer.load_state_dict(optimizer.optimizer.state_dict())


def check_learning_rates():
    rate = hvd.smooth_exponential_decay
    found = [rate(1e-4, 1000, 1e-3, step, 2000, 0.7) for step in (0, 500, 1000, 2000, torch.tensor(3000), 5000)]
    close(torch.tensor(found), torch.tensor([1e-4, 5.5e-4, 1e-3, 1e-3 * 0.7 ** 0.5, 7e-4, 4.9e-4]), 1e-9)
    assert rate(1.0, 0, 0.5, 0, 10, 0.9) == 0.5
    for wrong in ((1, 10, 1, -1, 5, 0.5), (1, -1, 1, 0, 5, 0.5), (1, 10, 1, 0, 0, 0.5), (1, 10, 1, 0, 5, 0)):
        raises(ValueError, rate, *wrong)


def check_arguments():
    plain = torch.optim.SGD(network(0).parameters(), lr=0.1)
    assert "clip_norm is 0" in raises(ValueError, hvd.ReplicatedVarsOptimizer, plain, clip_norm=0)
    optimizer = hvd.ReplicatedVarsOptimizer(plain)
    assert "loss_scale is 0" in raises(ValueError, optimizer.compute_loss, lambda: torch.tensor(1.0), 0)
    assert "the loss only" in raises(ValueError, optimizer.compute_loss, lambda: (torch.tensor(1.0), None))
    assert "the loss only" in raises(ValueError, optimizer.compute_loss, lambda: torch.ones(2))


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
