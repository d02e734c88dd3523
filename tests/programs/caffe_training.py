"""LeNet learns the digits by pycaffe, on any number of ranks; rank 0 prints loss and accuracy. Arguments: the source tree, a folder for the
model's files, iter_size, and what synchronize is told of it."""
import pathlib
import sys

import aiacc.caffe
import caffe
import numpy as np

source, folder = map(pathlib.Path, sys.argv[1:3])
iter_size, told = map(int, sys.argv[3:])
sys.path.insert(0, str(source / "examples/mxnet"))
from digits_data import images, split  # noqa: E402

BATCH, STEPS = 64, 44


kept = []  # Caffe has pointers into these arrays


def give(net, indices):
    kept.extend([np.ascontiguousarray(x[indices]), y[indices].astype(np.float32).reshape(-1, 1, 1, 1)])
    net.set_input_arrays(*kept[-2:])


def model(rank, size):
    """The example's solver file, with a batch of this rank."""
    net, solver = folder / f"{size}.{rank}.net", folder / f"{size}.{rank}.solver"
    net.write_text((source / "examples/caffe/lenet.prototxt").read_text().replace("batch_size: 64", f"batch_size: {BATCH // size // iter_size}"))
    text = (source / "examples/caffe/solver.prototxt").read_text()
    solver.write_text(text.replace("examples/caffe/lenet.prototxt", str(net)).replace("iter_size: 1", f"iter_size: {iter_size}"))
    return str(solver)


aiacc.caffe.init()
rank, size = aiacc.rank(), aiacc.size()
solver = caffe.SGDSolver(model(rank, size))
x, y = images(source / "examples/digits/digits.txt")
train, test = split(len(x), 1)
batches = train[:len(train) // BATCH * BATCH].reshape(-1, BATCH)
mine = np.ascontiguousarray(batches[:, rank * BATCH // size:(rank + 1) * BATCH // size]).reshape(-1)
give(solver.net, mine)
for net in solver.test_nets:
    give(net, test)
aiacc.caffe.synchronize(solver, told)
solver.step(STEPS)
if rank == 0:
    net = solver.test_nets[0]
    net.share_with(solver.net)
    net.forward()
    print(float(net.blobs["loss"].data), 100 * float(net.blobs["accuracy"].data))
