"""A rank of an elastic job whose hosts change, as a script of Horovod's is written: torch_elastic_grows.py DIRECTORY RANKS. It trains until RANKS ranks
have finished an epoch together. Each rank prints what all must agree on at the end."""
import hang_report

hang_report.after(150)

import os
import pathlib
import sys
import time

import horovod.torch as hvd
import torch
import torch.utils.data

BATCH, SAMPLES = 2, 48
folder, wanted = pathlib.Path(sys.argv[1]), int(sys.argv[2])
place = int(os.environ["AIACC_RANK"])

hvd.init()
torch.manual_seed(17 + place)  # ranks begin with different values
data = torch.linspace(-1, 1, SAMPLES * 3).reshape(SAMPLES, 3).double()
model = torch.nn.Linear(3, 1).double()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(torch.arange(SAMPLES), seed=3)
begun = []


@hvd.elastic.run
def train(state):
    begun.append((state.step, hvd.size()))
    (folder / f"{place}.{hvd.size()}").touch()
    while not state.whole:
        loader = torch.utils.data.DataLoader(torch.arange(SAMPLES), batch_size=BATCH, sampler=state.sampler)
        for number, batch in enumerate(loader):
            time.sleep(0.05)
            state.optimizer.zero_grad()
            state.model(data).pow(2).mean().backward()
            state.optimizer.step()
            state.sampler.record_batch(number, BATCH)
            state.seen = state.seen + hvd.allreduce(torch.bincount(batch, minlength=SAMPLES), op=hvd.Sum, name="seen")
            state.step += 1
            state.sizes = sorted({*state.sizes, hvd.size()})
            state.commit()
        repeated = state.seen - state.epoch - 1  # what is left of an epoch is divided evenly, with repetitions
        assert (repeated >= 0).all() and repeated.sum() <= 2 + 3, (state.epoch, state.seen)
        state.whole = state.sizes == [wanted]
        state.sizes = []
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0, whole=False, sizes=[],
                               seen=torch.zeros(SAMPLES, dtype=torch.int64))
train(state)
weights = hvd.allgather(model.weight.detach())
assert (weights == weights[0]).all(), weights
print(place, hvd.rank(), state.step, *(size for _, size in begun), begun[-1][0] > 0, "%.9f" % weights[0].sum().item(), flush=True)
