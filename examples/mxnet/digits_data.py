"""What the digits' examples share: options, images, and which images a step of an epoch has."""
import argparse
import pathlib

import numpy as np


def arguments(description, **more):
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "digits/digits.txt", help="the images")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="images of a step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=pathlib.Path, help="a file for loss and accuracy of each epoch")
    for name, keywords in more.items():
        parser.add_argument(f"--{name}", **keywords)
    return parser.parse_args()


def images(path):
    """Pixels from 0 to 1, and digits: a line is 64 characters 0 to g and the digit."""
    lines = [line.split() for line in path.read_text().splitlines()]
    pixels = np.array([[int(character, 17) for character in line[0]] for line in lines], dtype=np.float32)
    return (pixels / 16).reshape(-1, 1, 8, 8), np.array([int(line[1]) for line in lines])


def split(count, seed):
    """Indices of the images for training, and for testing: a fifth."""
    order = np.random.RandomState(seed).permutation(count)
    return order[:count * 4 // 5], order[count * 4 // 5:]


def batches(train, options, epoch):
    """The batches of an epoch, over all ranks, the same on each of them."""
    shuffled = np.random.RandomState(options.seed + epoch).permutation(train)
    return shuffled[:len(train) // options.batch * options.batch].reshape(-1, options.batch)


class Report:
    """Prints the epochs on rank 0, and writes them to a file."""

    def __init__(self, rank, result):
        self._rank, self._result, self._lines = rank, result, []

    def epoch(self, number, loss, accuracy):
        if self._rank == 0:
            print(f"epoch {number + 1:2}  loss {loss:.6f}  test accuracy {100 * accuracy:5.2f} %", flush=True)
            self._lines.append(f"{loss:.9f} {accuracy:.6f}\n")
            if self._result:
                self._result.write_text("".join(self._lines))
