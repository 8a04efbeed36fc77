"""The steps of a send and of a run, by name; what tests put here happens between them."""


def reached(step: str) -> None:
    """Nothing. Called on any thread."""
