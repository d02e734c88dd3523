"""Wrong types for each argument of the package aiacc without a framework: one sentence names the argument, and nothing has begun."""
import array

import aiacc
from wrong_arguments import ODD, refused, refuses_each

aiacc.init()
WORLD = aiacc.WORLD


def block():
    return array.array("f", [1.0] * 4 * WORLD.size)


GIVEN = {"send": block, "recv": block, "data": block, "sends": lambda: [block()], "to": lambda: 0, "source": lambda: 0, "ranks": lambda: [0],
         "color": lambda: 0, "order": lambda: "dp-tp", "sizes": lambda: [0, 1], "axis": lambda: "dp", "distance": lambda: 1, "size": lambda: 4,
         "key": lambda: "k", "value": block, "out": block, "rows": lambda: [0], "row_ids": lambda: [0], "values": block, "kind": lambda: 2,
         "updater": lambda: print, "compression": dict, "path": lambda: "f", "requests": list}
for name in ("allreduce", "allreduce_grouped", "reduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "gather", "scatter", "barrier", "send",
             "recv", "recv_any", "sendrecv"):
    unseen = {"reduce": {"recv"}, "gather": {"recv", "counts"}, "scatter": {"send", "counts"}}.get(name, set()) if aiacc.rank() else set()
    room = {"allgather": 4 * WORLD.size ** 2, "gather": 4 * WORLD.size ** 2, "reduce_scatter": 4, "scatter": 4}.get(name, 4 * WORLD.size)
    refuses_each(getattr(WORLD, name), {**GIVEN, "recv": lambda: array.array("f", [0.0] * room)}, {"wait", *unseen})
for name in ("create", "split"):
    refuses_each(getattr(WORLD, name), GIVEN)
refused(WORLD.translate, "ranks", ODD, {"to": WORLD})
refused(WORLD.translate, "to", ODD, {"ranks": [0]})
refused(WORLD.abort, "reason", ODD, {})
refuses_each(aiacc.Mesh, GIVEN)
mesh = aiacc.Mesh("dp-tp", [0, 1])
for call in (mesh.shift, mesh.ends, mesh.coordinate):
    refuses_each(call, GIVEN)
refuses_each(aiacc.Memory, GIVEN)
assert "size is -1" in refused(aiacc.Memory, "size", -1, {})
refuses_each(aiacc.start_timeline, GIVEN)
refuses_each(aiacc.wait_all, GIVEN)
refuses_each(aiacc.wait_any, GIVEN)
assert "empty" in refused(aiacc.wait_any, "requests", [], {})
for value in (float("nan"), -float("inf")):
    assert "number of seconds" in refused(aiacc.wait_any, "timeout", value, {"requests": []})
refuses_each(aiacc.KVStore, GIVEN)
store = aiacc.KVStore()
store.init("k", block(), rows=WORLD.size)
for name in ("init", "push", "pull", "pushpull", "broadcast", "row_sparse_push", "row_sparse_pull", "set_optimizer", "set_updater",
             "set_gradient_compression", "save_optimizer_states", "load_optimizer_states"):
    call = getattr(store, name)
    refuses_each(call, {**GIVEN, "key": lambda: "k" if name != "init" else "new"}, {"wait"} & set(call.__code__.co_varnames))
request = WORLD.barrier(wait=False)
refuses_each(request.wait, GIVEN)
request.wait()
for value, sentence in ((b"read only", "may be written"), (memoryview(bytearray(8))[::2], "contiguous")):
    assert sentence in refused(WORLD.allreduce, "send", value, {}), value
assert refused(WORLD.allreduce, "dtype", "float32", {"send": block()}) == "dtype is 'float32': it is a DType"
assert refused(WORLD.allreduce, "op", "sum", {"send": block()}).startswith("op is 'sum': it is one of Op.SUM, Op.AVG, ")
assert "Mode.SYNC" in refused(aiacc.KVStore, "mode", "sync", {})
assert "from 0" in refused(WORLD.allgather, "counts", [-1] * WORLD.size, {"send": block(), "recv": block()})
data = block()
WORLD.allreduce(data)
assert data[0] == WORLD.size
store.free()
print("all is well")
