"""Spec 3.6: an agent that tries everything gets out of its view by nothing, and into no other's home."""

import shutil
from pathlib import Path

import pytest

from tests.people import ALICE, BOB
from tests.socket.workshop import Workshop

PYTHON = "/usr/bin/python3"

ATTEMPTS = r"""#!/usr/bin/python3
import contextlib, ctypes, json, os, sys

sys.stdin.readline()
libc = ctypes.CDLL(None, use_errno=True)
found = []
MS_BIND, MS_REC, MNT_DETACH, OPEN_TREE, PIVOT_ROOT = 4096, 16384, 2, 428, 155
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
SECRET, OTHER = "@SECRET@", "/ctx/home/@OTHER@"


def look(where):
    for path in (SECRET, "." + SECRET, "/proc/1/root" + SECRET, "/work/1/root" + SECRET):
        if os.path.exists(path):
            found.append(where + ": " + path)
    with contextlib.suppress(OSError):
        found.extend(where + ": " + name for name in os.listdir(OTHER))


def climb(where):
    with contextlib.suppress(OSError):
        for _ in range(20):
            os.chdir("..")
            look(where)


def attempt(where, *calls):
    for call in calls:
        with contextlib.suppress(OSError):
            call()
        look(where)
    climb(where)


def give_itself_ids():
    for file, text in (("setgroups", "deny"), ("uid_map", "0 @UID@ 1"), ("gid_map", "0 @UID@ 1")):
        with contextlib.suppress(OSError), open("/work/self/" + file, "w") as map_file:
            map_file.write(text)


def into_a_copy():
    tree = libc.syscall(OPEN_TREE, -100, b"/", 1 | 0x8000)
    if tree < 0:
        raise OSError(ctypes.get_errno(), "open_tree")
    os.fchdir(tree)


def leave_a_chroot():
    top = os.open("/", os.O_RDONLY)
    os.mkdir("/tmp/shut")
    os.chroot("/tmp/shut")
    os.fchdir(top)
    climb("left a chroot")
    os.chroot(".")


def pivot():
    os.chdir("/tmp/new")
    libc.syscall(PIVOT_ROOT, b".", b"old")
    os.chdir("/")


attempt("as it is", lambda: [os.fchdir(number) for number in range(3, 64)])
with contextlib.suppress(OSError):
    os.symlink("/", "/tmp/link")
attempt("a link", lambda: os.chdir("/tmp/link/.."))
for number in range(3, 64):
    with contextlib.suppress(OSError):
        found.append("descriptor " + str(os.fstat(number)))
libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)
child = os.fork()
if child:
    os.waitpid(child, 0)
    sys.exit(0)
mount = lambda source, target, kind, flags=0: libc.mount(source, target, kind, flags, None)
attempt("its own proc", lambda: mount(b"none", b"/work", b"proc"), give_itself_ids)
attempt("umounts", *(lambda path=path: libc.umount2(path, MNT_DETACH) for path in (b"/", b"/ctx", b"/usr", b"/")))
attempt("a tmpfs", lambda: mount(b"none", b"/tmp", b"tmpfs"), lambda: os.makedirs("/tmp/new/old"))
attempt("a bind", lambda: mount(b"/", b"/tmp/new/old", None, MS_BIND | MS_REC), lambda: os.chdir("/tmp/new/old"))
attempt("a copy", into_a_copy)
attempt("a chroot", leave_a_chroot)
attempt("a new root", lambda: mount(b"none", b"/tmp/new", b"tmpfs"), lambda: os.mkdir("/tmp/new/old"), pivot)
attempt("without the old one", lambda: libc.umount2(b"/old", MNT_DETACH), lambda: libc.umount2(b"/", MNT_DETACH))
print(json.dumps({"type": "message", "role": "assistant", "content": json.dumps(found)}), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(shutil.which("python3", path="/usr/bin") is None, reason=f"needs {PYTHON}, the view's interpreter")
def test_no_attempt_leads_out_of_the_view_or_into_anothers_home(workshop: Workshop) -> None:
    secret = workshop.mount.base / "secret"
    secret.write_text("of the host\n")
    BOB.does(Path.mkdir, workshop.mount.path / f"home/{BOB.uid}/agent/own", parents=True)
    bot = workshop.bot()
    (workshop.root / f"agents/{bot.name}").write_text(
        ATTEMPTS.replace("@SECRET@", str(secret)).replace("@OTHER@", str(BOB.uid)).replace("@UID@", str(ALICE.uid))
    )
    frames = bot.send()
    assert [frame["content"] for frame in frames if frame["type"] == "message"] == ["[]"], frames
    assert ALICE.does(secret.read_text) == "of the host\n", "it is the view that hides it"
