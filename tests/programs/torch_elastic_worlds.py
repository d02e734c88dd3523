"""A rank of an elastic job whose lost ranks are replaced: torch_elastic_worlds.py DIRECTORY [STEP:PLACE[:STATUS]]... The process that aiaccrun
started as rank PLACE kills itself once, or exits with STATUS, in the middle of that step. Each rank prints what all must agree on at the end."""
import hang_report

hang_report.after(180)

import os
import pathlib
import signal
import sys

import torch
import torch.utils.data

import aiacc.torch as hvd

BATCH, RANKS = 2, 3
SAMPLES = BATCH * RANKS * 6
folder, deaths = pathlib.Path(sys.argv[1]), [tuple(map(int, one.split(":"))) for one in sys.argv[2:]]
place = int(os.environ["AIACC_RANK"])
is_new = any((folder / f"{step}.{who}").exists() for step, who, *_ in deaths if who == place)


def die_if_asked(step):
    for at, who, *status in deaths:
        if (at, who) == (step, place) and not (folder / f"{at}.{who}").exists():
            (folder / f"{at}.{who}").touch()
            if status:
                raise SystemExit(*status)
            os.kill(os.getpid(), signal.SIGKILL)


hvd.init()
torch.manual_seed(17 + place + 100 * is_new)  # a new rank begins with other values than the others have
data = torch.linspace(-1, 1, SAMPLES * 3).reshape(SAMPLES, 3).double()
model = torch.nn.Linear(3, 1).double()
if not is_new:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters())
sampler = hvd.ElasticSampler(range(SAMPLES), seed=3)
sizes, resets = [], []


@hvd.elastic.run
def train(state):
    sizes.append(hvd.size())
    while state.epoch < 2:
        loader = torch.utils.data.DataLoader(range(SAMPLES), batch_size=BATCH, sampler=state.sampler)
        for number, batch in enumerate(loader):
            state.optimizer.zero_grad()
            state.model(data).pow(2).mean().backward()  # the same in each step, whoever has which samples
            die_if_asked(state.step)
            state.optimizer.step()
            state.sampler.record_batch(number, BATCH)
            state.seen = state.seen + hvd.allreduce(torch.bincount(batch, minlength=SAMPLES), op=hvd.Sum, name="seen")
            state.step += 1
            if state.step % 2 == 0:
                state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0, seen=torch.zeros(SAMPLES, dtype=torch.int64))
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
train(state)
assert torch.equal(hvd.broadcast(model.weight.detach(), 0), model.weight.detach())
assert (state.seen == 2).all(), state.seen
print(place, hvd.rank(), hvd.local_rank(), hvd.local_size(), state.step, *sizes, *resets, "%.9f" % model.weight.sum().item(), flush=True)
