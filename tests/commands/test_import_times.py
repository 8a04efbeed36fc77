"""What an import makes of its sources' times (spec 4.2)."""

from pathlib import Path

from tests.commands.claude_lines import UUID, claude_line
from tests.commands.conftest import Agent


def import_claude_sessions(agent: Agent, directory: Path, **years: int) -> None:
    """Imports a session for each name, said in that year."""
    for name, year in years.items():
        line = claude_line("user", "x", uuid=name, timestamp=f"{year}-01-01T00:00:00Z").replace(UUID, name)
        (directory / f"{name}.jsonl").write_text(line)
    assert agent.run("agent", "import", agent.name, "--from", "claude-code", str(directory)).code == 0


def test_sessions_are_listed_by_the_times_of_their_entries_not_of_the_import(agent: Agent, tmp_path: Path) -> None:
    agent.new("today")
    agent.say("today", "user", "x")
    import_claude_sessions(agent, tmp_path, new=2025, old=2023, middle=2024)
    listed = agent.run("agent", "session", "list", agent.name).out.splitlines()
    assert [row.split("\t")[0] for row in listed] == ["today", "new", "middle", "old"]
    assert agent.run("agent", "session", "list", agent.name, "-n", "2").out.splitlines() == listed[:2]
    assert f"{agent.name}\t4\ttoday\t" in agent.run("agent", "list").out


def test_an_import_makes_the_newest_session_current_where_there_was_none(agent: Agent, tmp_path: Path) -> None:
    import_claude_sessions(agent, tmp_path, a_old=2022, b_new=2024, c_middle=2023)
    assert (agent.directory / "index/current").read_text() == "b_new\n"
    import_claude_sessions(agent, tmp_path, d_newest=2025)
    assert (agent.directory / "index/current").read_text() == "b_new\n"
