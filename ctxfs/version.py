"""Which ctxfs this is. Imports nothing that a command would have to wait for."""


def version() -> str:
    """The installed version, ``unknown`` when run from a tree that was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("ctxfs")
    except PackageNotFoundError:
        return "unknown"
