"""The package perseus of `aiaccrun --provide perseus`: the names of AIACC-Training 1, on aiacc."""
import pathlib
import runpy

runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "load_aiacc.py"))
