"""What the digits' examples share: options, images, the network, and which images a step of an epoch has."""
import argparse
import pathlib

import torch


def arguments(description, **more):
    """`more`: names of numbers that one example alone has, with what they are."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "digits/digits.txt", help="the images")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="images of a step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=pathlib.Path, help="a file for loss and accuracy of each epoch")
    for name, text in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=text)
    return parser.parse_args()


def images(path):
    """Pixels from 0 to 1, and digits: a line is 64 characters 0 to g and the digit."""
    lines = [line.split() for line in path.read_text().splitlines()]
    pixels = torch.tensor([[int(character, 17) for character in line[0]] for line in lines], dtype=torch.float32)
    return (pixels / 16).reshape(-1, 1, 8, 8), torch.tensor([int(line[1]) for line in lines])


def network():
    # Without ReLU and MaxPool2d, whose gradients jump: a difference in the last bit, which the processor and the number of ranks
    # make, could there grow until it changes the third digit of the loss.
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.Tanh(), torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.Tanh(),
        torch.nn.Flatten(), torch.nn.Linear(32 * 4 * 4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))


def split(count, seed):
    """Indices of the images for training, and for testing: a fifth."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[:count * 4 // 5], order[count * 4 // 5:]


def batches(train, options, epoch):
    """The batches of an epoch, over all ranks, the same on each of them."""
    shuffled = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(options.seed + epoch))]
    return shuffled[:len(train) // options.batch * options.batch].split(options.batch)
