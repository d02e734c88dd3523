"""Runs the programs that its arguments name one after another in one process, each from its init() to its shutdown(): to import a
framework takes as long as most of them."""
import pathlib
import runpy
import sys

import hang_report

programs = sys.argv[1:]
for program in programs:
    hang_report.after(250)
    sys.argv = [program]
    runpy.run_path(str(pathlib.Path(__file__).with_name(program)), run_name="__main__")
