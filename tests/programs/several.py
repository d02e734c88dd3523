"""Runs the programs that its arguments name one after another in one process, each from its init() to its shutdown(): to import a
framework takes as long as most of them. "PROGRAM:WORD" gives a program a word."""
import pathlib
import runpy
import sys

import hang_report

programs = sys.argv[1:]
for words in programs:
    hang_report.after(250)
    program, *_ = sys.argv = words.split(":")
    runpy.run_path(str(pathlib.Path(__file__).with_name(program)), run_name="__main__")
