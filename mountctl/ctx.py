"""``ctx``: sessions for people and agents, by ordinary file operations on the mount (spec 4.1, 4.2)."""

import sys

from mountctl.cli import Command, Group, run

PROGRAM = Group(
    "Reads and changes agents' sessions through the mount ($CTX_ROOT, default /ctx).",
    {
        "status": Command("mountctl.ctx_status", "show the mount, the store and my home"),
        "search": Command("mountctl.ctx_search", "find words in my sessions, the newest first"),
        "doctor": Command("mountctl.ctx_doctor", "say what is wrong with my sessions, and where"),
        "cosh": Group(
            "Sessions of cosh-core, by way of its session control.",
            {
                "list": Command("mountctl.ctx_cosh_list", "list the sessions of a workspace"),
                "inspect": Command("mountctl.ctx_cosh_inspect", "show a session, whatever its health"),
                "validate": Command("mountctl.ctx_cosh_validate", "show a session if it can be resumed"),
                "clear-all": Command("mountctl.ctx_cosh_clear_all", "remove the sessions of a workspace"),
            },
        ),
        "session-control": Command("mountctl.ctx_session_control", "answer cosh-shell in place of cosh-core"),
        "agent": Group(
            "Sessions of agents; model:PROVIDER/MODEL in place of an agent means a model's sessions.",
            {
                "list": Command("mountctl.ctx_agent_list", "list the agents that have sessions"),
                "history": Command("mountctl.ctx_agent_history", "show a session's messages"),
                "output": Command("mountctl.ctx_agent_output", "print the last text of the assistant"),
                "tree": Command("mountctl.ctx_agent_tree", "show which session was branched from which"),
                "log": Command("mountctl.ctx_agent_log", "show every entry of a session, and follow it"),
                "trajectory": Command("mountctl.ctx_agent_trajectory", "print a session in the format ATIF"),
                "send": Command("mountctl.ctx_agent_send", "send a message to an agent, print its reply"),
                "chat": Command("mountctl.ctx_agent_chat", "talk with an agent, a message a line"),
                "resume": Command("mountctl.ctx_agent_resume", "print a session's entries after a cursor"),
                "cancel": Command("mountctl.ctx_agent_cancel", "end a run"),
                "import": Command("mountctl.ctx_agent_import", "import transcripts of other programs"),
                "export": Command("mountctl.ctx_agent_export", "write a session as a file for other programs"),
                "session": Group(
                    "Sessions of one agent.",
                    {
                        "list": Command("mountctl.ctx_session_list", "list an agent's sessions"),
                        "new": Command("mountctl.ctx_session_new", "make a session"),
                        "select": Command("mountctl.ctx_session_select", "make a session the current one"),
                        "branch": Command("mountctl.ctx_session_branch", "make a session that goes on from an entry"),
                        "compact": Command("mountctl.ctx_session_compact", "let a summary stand for what was said"),
                        "checkpoint": Command("mountctl.ctx_session_checkpoint", "take a snapshot of its files"),
                        "rewind": Command("mountctl.ctx_session_rewind", "go on from an earlier entry, files too"),
                        "archive": Command("mountctl.ctx_session_archive", "put a session aside, read-only"),
                        "gc": Command("mountctl.ctx_session_gc", "archive or delete sessions that are left over"),
                        "import": Command("mountctl.ctx_agent_import", "import transcripts of other programs"),
                        "export": Command("mountctl.ctx_agent_export", "write a session as a file for other programs"),
                    },
                ),
            },
        ),
        "checkpoint": Group(
            "Snapshots of directories, by the checkpoint daemon (`mountctl checkpointd`).",
            {
                "init": Command("mountctl.ctx_checkpoint_init", "put a directory under protection"),
                "create": Command("mountctl.ctx_checkpoint_create", "take a snapshot"),
                "rollback": Command("mountctl.ctx_checkpoint_rollback", "make a directory what a snapshot holds"),
                "delete": Command("mountctl.ctx_checkpoint_delete", "delete a snapshot"),
                "list": Command("mountctl.ctx_checkpoint_list", "list snapshots"),
                "diff": Command("mountctl.ctx_checkpoint_diff", "show what changed between two snapshots"),
                "status": Command("mountctl.ctx_checkpoint_status", "show the daemon and my workspaces"),
                "cleanup": Command("mountctl.ctx_checkpoint_cleanup", "delete the oldest snapshots"),
                "config": Command("mountctl.ctx_checkpoint_config", "show the daemon's configuration"),
                "reload": Command("mountctl.ctx_checkpoint_reload", "make the daemon read its configuration again"),
                "recover": Command("mountctl.ctx_checkpoint_recover", "make a workspace an ordinary directory again"),
                "health": Command("mountctl.ctx_checkpoint_health", "show what needs looking after"),
            },
        ),
    },
)


def main() -> int:
    """The console script; called as cosh-shell calls its core, it is that (spec 5)."""
    arguments = sys.argv[1:]
    return run("ctx", PROGRAM, ["session-control"] if arguments == ["--session-control"] else arguments)


if __name__ == "__main__":
    sys.exit(main())
