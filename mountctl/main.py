"""``mountctl``: mounting, unmounting and watching ctxfs, for admins (spec 4.6)."""

import sys

from mountctl.cli import Command, Group, run

PROGRAM = Group(
    "Mounts and watches ctxfs, the file system of agents' session histories.",
    {
        "mount": Command("mountctl.mount", "mount a store and return when it answers"),
        "umount": Command("mountctl.umount", "sync, unmount and end the daemon"),
        "status": Command("mountctl.status", "show every ctxfs mount and whether it works"),
        "backup": Command("mountctl.backup", "copy a store, mounted or not"),
        "restore": Command("mountctl.restore", "put a backup in the place of a store"),
        "agent": Group(
            "Defines agents, and models (model:PROVIDER/MODEL in place of NAME).",
            {
                "add": Command("mountctl.agent_add", "define an agent"),
                "set": Command("mountctl.agent_set", "change an agent's definition"),
                "remove": Command("mountctl.agent_remove", "take a definition back; sessions stay"),
                "list": Command("mountctl.agent_list", "list the agents and models that are defined"),
            },
        ),
        "shared": Group(
            "Spaces that the members of a group share.",
            {
                "create": Command("mountctl.shared_create", "make a shared space"),
                "remove": Command("mountctl.shared_remove", "remove a shared space that holds nothing"),
                "list": Command("mountctl.shared_list", "list the shared spaces"),
            },
        ),
        "doctor": Command("mountctl.doctor", "check a store that is not mounted, and repair what is derived"),
        "checkpointd": Command("mountctl.checkpointd", "serve workspace checkpoints (ws-ckpt)"),
        "install": Command("mountctl.install", "put units, mount helper, man pages and completions in place"),
        "uninstall": Command("mountctl.uninstall", "remove what install put in place"),
        "config": Group(
            "Shows and checks the configuration.",
            {
                "show": Command("mountctl.config_show", "show every setting and where it comes from"),
                "check": Command("mountctl.config_check", "check the configuration files and the environment"),
            },
        ),
    },
)


def main() -> int:
    """The console script."""
    return run("mountctl", PROGRAM, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
