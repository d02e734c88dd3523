"""`aiaccrun --provide gloo`: process groups of torch.distributed that would be Gloo's are aiacc's, and keep the name gloo, by which
packages know them. Python runs this file when it starts; without torch nothing of it has an effect."""
import importlib.machinery
import os
import sys

_MODULE = "torch.distributed.distributed_c10d"
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _change(module):
    import runpy
    runpy.run_path(os.path.join(os.path.dirname(_FOLDER), "gloo_groups.py"))["let_in"](module)


class _Finder:
    """Changes the one module when it is imported."""

    def find_spec(self, name, path=None, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            return None
        loader, load = spec.loader, spec.loader.exec_module

        def exec_module(module):
            load(module)
            if module.__name__ == _MODULE and hasattr(module, "_new_process_group_helper"):  # not in a torch without torch.distributed
                _change(module)
        loader.exec_module = exec_module
        return spec


def _run_that_of_others():
    """Python runs the first sitecustomize only, which was the user's or the system's before."""
    places = [os.path.abspath(one) for one in sys.path]
    others = sys.path[places.index(_FOLDER) + 1:] if _FOLDER in places else sys.path
    spec = importlib.machinery.PathFinder.find_spec(__name__, others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec
    module = module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


if _MODULE in sys.modules:  # a file of site-packages (.pth) has imported torch
    _change(sys.modules[_MODULE])
else:
    sys.meta_path.insert(0, _Finder())
_run_that_of_others()
