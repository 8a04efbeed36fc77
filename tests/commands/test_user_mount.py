"""A user's own mount, through fusermount3: for that user alone, made and ended without root (spec 1.8, 4.6)."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

from tests.commands.conftest import Place
from tests.mounting import PATIENCE_S, PROJECT
from tests.own_mounts import in_own_mounts
from tests.people import may_have_namespaces

UID = pwd.getpwnam("daemon").pw_uid  # fusermount3 wants a uid that has a name

# Lets the user reach an interpreter below a directory that is root's alone, and nothing else.
REACH = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"

# Binding its socket needs a user namespace, where the daemon may make one.
PING = """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    client.sendall(b'{"op":"ping"}\\n')
    print(client.recv(100).decode(), end="")
"""

# In a mount namespace of its own, where /dev/fuse is everyone's, as it is where users may mount at all.
SCRIPT = f"""
set -eu
mknod "$BASE/fuse" c 10 229 && chmod 666 "$BASE/fuse" && mount --bind "$BASE/fuse" /dev/fuse
as_user() {{ setpriv --reuid {UID} --regid {UID} --clear-groups $REACH "$@"; }}
as_user "$PYTHON" -m mountctl.main mount
as_user "$PYTHON" -m mountctl.ctx agent session new demo mine
as_user env CTX_ROOT=/nowhere "$PYTHON" -m mountctl.ctx agent list 2>&1 || true
status() {{ as_user "$PYTHON" -m mountctl.main status --json || true; }} # a dead mount of somebody else
until status | jq -e '.mounts[] | select(.mountpoint == env.CTX_ROOT) | .sessions' >/dev/null; do :; done
status
ls "$HOME/ctx" >/dev/null 2>&1 && echo "root may look in" || echo "root may not look in"
[ -z "$PING" ] || as_user "$PYTHON" -c "$PING" "$HOME/ctx/agent/ctx.sock"
as_user "$PYTHON" -m mountctl.main umount
grep -c "$HOME/ctx" /proc/self/mountinfo || true
"""


def test_a_user_mounts_looks_and_unmounts(place: Place) -> None:
    home = place.base / "home"
    home.mkdir()
    os.chown(home, UID, UID)
    environment = {
        **{key: value for key, value in place.environment.items() if not key.startswith("CTX")},
        **{
            "BASE": str(place.base),
            "HOME": str(home),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(PROJECT),
            "REACH": REACH,
            "PING": PING if may_have_namespaces() else "",
        },
        **{"CTX_ROOT": str(home / "ctx"), "CTXFS_RUNTIME_DIR": str(home / "run"), "XDG_DATA_HOME": str(home / "data")},
    }
    ran = subprocess.run(
        in_own_mounts(place.base, "sh", "-c", SCRIPT),
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    session, advice, status, root, *pong, left = ran.stdout.splitlines()
    (mount,) = [one for one in json.loads(status)["mounts"] if one["mountpoint"] == str(home / "ctx")]
    assert session == str(home / f"ctx/home/{UID}/agent/demo/session/mine")
    mine = str(home / "ctx")
    assert (
        advice == f"ctx: no ctxfs at /nowhere (No such file or directory): yours is at {mine}: export CTX_ROOT={mine}"
    )
    assert (mount["state"], mount["store"], mount["sessions"]) == ("ok", str(home / "data/ctxfs"), 1)
    assert (root, left) == ("root may not look in", "0")
    assert pong == (['{"type":"pong"}'] if may_have_namespaces() else [])
    made = {path: Path(home / path).stat() for path in ("ctx", "data/ctxfs", "run")}
    assert {path: (stat.st_uid, stat.st_mode & 0o777) for path, stat in made.items()} == {
        "ctx": (UID, 0o755),
        "data/ctxfs": (UID, 0o700),
        "run": (UID, 0o700),
    }
