"""Draws the steps of one rank in a timeline (AIACC_TIMELINE) as text: a row for each gradient, a column for each moment.

    AIACC_TIMELINE=timeline.json aiaccrun -np 4 python3 digits_horovod.py --data digits.txt
    python3 timeline_picture.py timeline.json --steps 2,3
"""
import argparse
import json
import sys

MARKS = {"pack": "p", "wait": ".", "negotiate": "n", "queue": "q", "reduce": "#", "unpack": "u", "round": "-"}
NEGOTIATION = "negotiation"
LATER_WINS = list(MARKS)  # of spans that share a column
LEGEND = ". waits  n negotiated  q queued  # reduced  p packed  u unpacked  - round of negotiation"


def read(path, rank):
    """(rows: name -> spans (name, begin, end) in microseconds, ends of steps in order) of one rank; of the engine with the most rows."""
    with open(path, encoding="utf-8") as file:
        events = [event for event in json.load(file) if event["pid"] == rank]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    # An engine with a name puts it before its rows.
    engines = sorted((name[:-len(NEGOTIATION)] for name in names.values() if name.endswith(NEGOTIATION)), key=len)
    engine_of = {row: max((one for one in engines if name.startswith(one)), key=len, default="") for row, name in names.items()}
    chosen = max(engines, key=list(engine_of.values()).count, default="")
    rows, ends = {}, []
    for event in events:
        if engine_of.get(event.get("tid")) != chosen:
            continue
        if event["ph"] == "X" and event["name"] in MARKS:
            rows.setdefault(names[event["tid"]][len(chosen):], []).append((event["name"], event["ts"], event["ts"] + event["dur"]))
        if event["name"] == "step ends":
            ends.append(event["ts"])
    return rows, sorted(ends)


def submissions(spans):
    """A row's spans, in one list for each submission of its gradient and each round."""
    found = []
    last = "round"
    for span in sorted(spans, key=lambda one: one[1:]):
        name = span[0]
        ended = last in ("reduce", "unpack") and name != "unpack"
        if name == "round" or last == "round" or ended or (name == "wait" and last != "pack"):
            found.append([])
        found[-1].append(span)
        last = name
    return found


def of_step(rows, ends, step):
    """The rows of what was submitted in a step (from 1). It may be reduced after the step's end, which is where the program waits for it."""
    after = ends[step - 2] if step > 1 else float("-inf")
    found = {}
    for row, spans in rows.items():
        mine = [span for one in submissions(spans) if after < one[0][1] <= ends[step - 1] for span in one]
        if mine:
            found[row] = mine
    return found


def drawn(spans, begin, column, width):
    line = [" "] * width
    for name, start, end in sorted(spans, key=lambda span: LATER_WINS.index(span[0])):
        first, last = int((start - begin) / column), int((end - begin) / column)
        for at in range(max(first, 0), min(max(last, first + 1), width)):
            line[at] = MARKS[name]
    return "".join(line)


def picture(path, rank, steps, width):
    rows, ends = read(path, rank)
    label = max((len(name) for name in rows), default=0)
    for step in steps:
        found = of_step(rows, ends, step) if step <= len(ends) else {}
        if not found:
            yield f"step {step} of rank {rank} is not in the timeline, which has {len(ends)}"
            continue
        begin = min(span[1] for spans in found.values() for span in spans)
        end = max(span[2] for spans in found.values() for span in spans)
        yield f"step {step} of rank {rank}: {(end - begin) / 1e3:.2f} ms from its first gradient to its last result"
        column = (end - begin) / width or 1.0
        for row in sorted(found, key=lambda name: min(span[1] for span in found[name])):
            yield f"  {row:{label}} |{drawn(found[row], begin, column, width)}|"
    yield f"  {'':{label}}  {LEGEND}"


def main():
    parser = argparse.ArgumentParser(description="The steps of one rank in a timeline, as text.")
    parser.add_argument("file")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--steps", default="1,2,3", help="numbers from 1, with commas between them (1,2,3)")
    parser.add_argument("--width", type=int, default=72, help="columns of a step (72)")
    options = parser.parse_args()
    try:
        steps = [int(number) for number in options.steps.split(",")]
    except ValueError:
        steps = [0]
    if min(steps) < 1 or options.width < 1:
        sys.exit("timeline_picture: --steps and --width are numbers from 1")
    try:
        lines = list(picture(options.file, options.rank, steps, options.width))
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"timeline_picture: {options.file} is no timeline: {error}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
