"""Random sequences of calls on few names: whatever one does, the next must find what the disk would have."""

import os
import random
from collections.abc import Callable
from typing import Any

from tests.posix.table import rows
from tests.posix.world import World, content, look, opened, outcome, tree

NAMES = ("a", "b", "c", "a/a", "a/b", "b/a", "b/b", "a/b/c", "b/a/c", "c/a")
STEPS = 150
Step = Callable[[random.Random], Any]


def name(chance: random.Random) -> str:
    return chance.choice(NAMES)


def write(chance: random.Random) -> Any:
    data = b"x" * chance.choice((1, 100, 5000))
    flags = os.O_RDWR | os.O_CREAT | chance.choice((0, os.O_EXCL, os.O_TRUNC, os.O_APPEND))
    return opened(name(chance), flags, lambda fd: os.pwrite(fd, data, chance.choice((0, 3, 4096))))


def through_handle(chance: random.Random) -> Any:
    """Acts on a file that loses its name meanwhile, or gets another."""
    first, second = name(chance), name(chance)

    def use(fd: int) -> list[Any]:
        moved = outcome(chance.choice((os.rename, os.link)), first, second)
        removed = outcome(os.unlink, first)
        return [moved, removed, outcome(os.pwrite, fd, b"late", 2), os.fstat(fd).st_nlink, os.fstat(fd).st_size]

    return opened(first, os.O_RDWR, use)


ACTIONS: tuple[Step, ...] = (
    write,
    write,
    through_handle,
    lambda chance: os.mkdir(name(chance)),
    lambda chance: os.mkdir(name(chance)),
    lambda chance: os.rename(name(chance), name(chance)),
    lambda chance: os.rename(name(chance), name(chance)),
    lambda chance: os.link(name(chance), name(chance)),
    lambda chance: os.symlink(name(chance), name(chance)),
    lambda chance: os.unlink(name(chance)),
    lambda chance: os.rmdir(name(chance)),
    lambda chance: os.truncate(name(chance), chance.choice((0, 10, 9000))),
    lambda chance: os.chmod(name(chance), chance.choice((0o600, 0o755))),
    lambda chance: look(name(chance)),
    lambda chance: content(name(chance)),
    lambda chance: sorted(os.listdir(name(chance))),
    lambda chance: os.readlink(name(chance)),
    lambda chance: os.setxattr(name(chance), "user.note", b"value"),
    lambda chance: os.listxattr(name(chance)),
)


@rows("random", {f"seed {seed}": seed for seed in range(12)})
def random_steps(world: World, seed: int) -> Any:
    chance = random.Random(seed)
    os.umask(0o022)
    return [
        [outcome(chance.choice(ACTIONS), chance) for _ in range(STEPS)],
        tree(),
        [outcome(look, each) for each in NAMES],
    ]
