"""What --provide gloo changes in torch.distributed: the one function by which all its groups are made."""
import functools
import logging
import os
import pathlib
import runpy
import sys

_log = logging.getLogger("aiacc.torch")
_said = set()


def _say(sentence):
    """Once in a process, at level info: of Python's logging, or of AIACC_LOG."""
    if sentence in _said:
        return
    _said.add(sentence)
    if _log.isEnabledFor(logging.INFO):
        _log.info(sentence)
    elif {"info", "debug", "trace"} & set(os.environ.get("AIACC_LOG", "").split(",")):
        print(f"aiacc: {sentence}", file=sys.stderr)


def _names(c10d, backend):
    """The back ends that torch would make the group of. A default group without a back end is, with torch 2, of the device's own."""
    config = getattr(c10d, "BackendConfig", None)  # torch 1 has one back end for all devices
    if "gloo" not in str(backend).lower() and (config is None or backend != "undefined"):
        return set()
    if config is None:
        return {str(backend).lower()}
    return {str(name) for name in config(c10d.Backend(backend)).get_device_backend_map().values()}


def _named_as_before(c10d, group, backend):
    """dist.get_backend says what it would say without aiacc. The group itself does not: DistributedDataParallel would look for Gloo in it."""
    world = getattr(c10d, "_world", None)
    groups = c10d._pg_map if world is None else world.pg_map
    if group not in groups or type(group).__module__ != "aiacc.torch.process_group":  # this rank is no member, or the group was there
        return
    groups[group] = (backend, *groups[group][1:])
    if world is not None and hasattr(world, "pg_backend_config"):
        world.pg_backend_config[group] = str(c10d.BackendConfig(backend))


def _is_of_the_job(c10d, members, store):
    """Packages make worlds beside the default one by the same function, whose ranks have numbers of their own."""
    if getattr(c10d, "_use_torchcomms_enabled", bool)():
        return False
    return not c10d.is_initialized() or (bool(members) and store is c10d._get_default_store())


def let_in(c10d):
    original = c10d._new_process_group_helper

    # The names of the parameters are torch's: packages use them.
    @functools.wraps(original)
    def new_group(group_size, group_rank, global_ranks_in_group, backend, store, *more, **named):
        found = _names(c10d, backend)
        is_first = (c10d.get_rank() if global_ranks_in_group and c10d.is_initialized() else group_rank) == 0
        if found != {"gloo"} or not _is_of_the_job(c10d, global_ranks_in_group, store):
            if "gloo" in found and is_first:
                why = "one of aiacc is on the CPU alone" if found != {"gloo"} else "it is a world beside the default group"
                _say(f"--provide gloo leaves a group of torch.distributed with the back ends {backend} to torch: {why}")
            return original(group_size, group_rank, global_ranks_in_group, backend, store, *more, **named)
        runpy.run_path(str(pathlib.Path(__file__).with_name("load_aiacc.py")))
        from aiacc.torch import backend as aiacc_backend
        aiacc_backend.meet_beside_default()
        made = original(group_size, group_rank, global_ranks_in_group, "aiacc", store, *more, **named)
        _named_as_before(c10d, made[0] if isinstance(made, tuple) else made, backend)
        if is_first:
            _say("--provide gloo: groups of torch.distributed of the back end gloo are aiacc's")
        return made
    c10d._new_process_group_helper = new_group
