"""``mountctl mount``: mounts a store and returns when the mount answers, or fails with the reason (spec 4.6).

The daemon is a process of its own with its own log; this one checks and makes what is needed, starts it, waits for its
word, asks the mount itself once, and takes back whatever it made if that fails.
"""

import argparse
import contextlib
import os
import select
import subprocess
from pathlib import Path

import ctxfs
from backend.errors import InvalidValue
from ctxfs import logs, metrics, mountpoint, probe, stores
from ctxfs.agents.settings import Settings
from ctxfs.options import MountOptions, parse_options
from ctxfs.plan import Plan, daemon_command
from ctxfs.runtime import RuntimeFiles
from mountctl.cli import DENIED, ERROR, OK, UNAVAILABLE, USAGE, Failure
from mountctl.settings import add_mountpoint, add_store, config_of

DESCRIPTION = """Mounts a store and returns when the mount answers. Exit codes: 3 the mountpoint cannot be made,
4 it is not empty, 5 already mounted, 6 a dead mount of somebody else is in the way, 7 the store is in use,
8 it is corrupt, 9 it cannot be written, 10 it is of another format."""

START_TIMEOUT_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_mountpoint(parser)
    add_store(parser)
    parser.add_argument("--format", choices=stores.FORMATS, help="default: what the store is, sqlite for a new one")
    parser.add_argument("-o", dest="options", metavar="OPTS", help="ro, noexec, noatime, sync … as mount(8) has them")
    parser.add_argument("--log-level", choices=logs.LEVELS, help="default: info")
    parser.add_argument("--metrics", metavar="PATH", help="figures as Prometheus text: a file, or a socket (*.sock)")
    parser.add_argument("-f", "--foreground", action="store_true", help="stay in the foreground, log to stderr")


def run(arguments: argparse.Namespace) -> int:
    options_of(arguments.options or "")  # in -o's own words, before the setting's
    config = config_of(arguments)
    options = options_of(config.options)
    store = Path(os.path.realpath(options.store or config.store))
    _check_device()
    with contextlib.ExitStack() as undo:
        form = stores.choose(store, config.format)
        target = mountpoint.canonical(config.mountpoint)
        _check_places(store, target)
        undo.callback(stores.remove_made, mountpoint.prepare(target, config.runtime_dir))
        undo.callback(stores.remove_made, stores.make_directory(store))
        plan = Plan(
            target,
            store,
            form,
            options.kernel,
            config.runtime_dir,
            config.log_level,
            marks=config.marks,
            agents=_agents(config.agents, options),
            metrics=_metrics(config.metrics, target),
        )
        if arguments.foreground:
            _serve(plan, undo)
        else:
            start(plan._replace(log_file=RuntimeFiles(plan.runtime, target).log))
            undo.pop_all()
    return OK


def _metrics(configured: Path | None, target: str) -> Path | None:
    if configured is None:
        return None
    path = Path(mountpoint.canonical(str(configured)))
    if path.is_relative_to(target):
        raise Failure(f"the metrics {path} lie below the mountpoint {target}: the mount would wait for itself", USAGE)
    metrics.check_place(path)
    return path


def _agents(configured: Settings, options: MountOptions) -> Settings:
    return configured if options.agent_timeout is None else configured._replace(wall_s=options.agent_timeout)


def options_of(text: str) -> MountOptions:
    """``-o`` as it is meant (``Failure``, usage)."""
    try:
        return parse_options(text)
    except InvalidValue as error:
        raise Failure(str(error), USAGE) from error


def _serve(plan: Plan, undo: contextlib.ExitStack) -> None:
    """In this process, until it ends; what was made stays once it is mounted."""
    from ctxfs.daemon import serve

    def keep() -> None:
        undo.pop_all()

    logs.configure(plan.log_level)
    serve(plan, keep)


def _check_device() -> None:
    if not os.path.exists("/dev/fuse"):
        raise Failure("/dev/fuse is missing: load the fuse module, or give the container the device", UNAVAILABLE)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Failure("/dev/fuse may not be opened: mount as root, or `chmod 666 /dev/fuse` as root", DENIED)


def _check_places(store: Path, target: str) -> None:
    if store.is_relative_to(target):
        raise Failure(f"the store {store} lies below the mountpoint {target}: the mount would hide it")
    if Path(target).is_relative_to(store):
        raise Failure(f"the mountpoint {target} lies in the store {store}: the mount would wait for itself")


def start(plan: Plan) -> None:
    """Starts a detached daemon for ``plan``; the mount answers afterwards (``Failure``)."""
    assert plan.log_file is not None
    RuntimeFiles(plan.runtime, plan.mountpoint).make_directory()
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "r", encoding="utf-8") as ready:
        child = _spawn(plan, plan.log_file, write_end)
        os.close(write_end)
        if not select.select([ready], [], [], START_TIMEOUT_S)[0]:
            child.kill()
        answer = ready.readline().strip()
    if answer != "ok":
        child.wait(START_TIMEOUT_S)
        raise _failure(answer, plan.log_file)
    try:
        probe.answers(plan.mountpoint, START_TIMEOUT_S)
    except OSError as error:
        child.terminate()
        child.wait(START_TIMEOUT_S)
        raise Failure(f"{plan.mountpoint} is mounted but does not answer: {error.strerror}", UNAVAILABLE) from error
    child.returncode = 0  # it outlives this process on purpose


def _spawn(plan: Plan, log: Path, ready: int) -> subprocess.Popen[bytes]:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            daemon_command(plan, ready),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            pass_fds=(ready,),
            cwd=Path(ctxfs.__file__).parents[1],
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _failure(answer: str, log: Path) -> Failure:
    code, _, reason = answer.partition(" ")
    if code.isdigit():
        hint = f" (more in {log})" if int(code) == ERROR else ""
        return Failure(reason + hint, int(code))
    return Failure(f"the daemon ended before it had mounted: see {log}", ERROR)
