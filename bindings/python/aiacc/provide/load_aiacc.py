"""Makes the package aiacc importable: this Python's own where it has one, else the one that this file belongs to."""
import importlib.util
import pathlib
import sys


def load():
    found = importlib.util.find_spec("aiacc")
    if found is not None and found.origin is not None:  # not a mere folder of that name, as a checkout has it
        return
    folder = pathlib.Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location("aiacc", folder / "__init__.py", submodule_search_locations=[str(folder)])
    module = importlib.util.module_from_spec(spec)
    sys.modules["aiacc"] = module
    spec.loader.exec_module(module)


load()
