"""A store against a plain model: any sequence of calls leaves both saying the same (spec 1.2, 1.3, 2.8)."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from backend.errors import Busy, CtxError, Exists, SessionAlreadyExistsError
from backend.lines import state_line
from backend.names import cwd_key
from backend.rows import Append, Appended, Line, Session
from tests.contract.harness import Harness, cd, raws, say

NAMES = st.sampled_from(["a", "b", "c", "d", "default"])
LINES = st.one_of(
    st.builds(say, st.text('aé\U0001f600\n"\\', max_size=5), st.sampled_from(["user", "assistant"])),
    st.builds(cd, st.sampled_from(["/", "/x", "/y", "/é"])),
    st.builds(state_line, st.just("idle"), st.sampled_from(["idle", "active", "done"])),
)


@dataclass
class Model:
    """A session as a list of lines; everything else is computed from it each time it is asked."""

    id: int
    name: str
    lines: list[Line] = field(default_factory=list)
    seq: int = 0
    cwd_seq: int = 0
    archived: bool = False

    def stream(self, stream: str) -> bytes:
        return raws([line for line in self.lines if line.stream == stream])

    def last(self, what: str, initial: str) -> str:
        return next((value for line in reversed(self.lines) if (value := getattr(line, what)) is not None), initial)

    @property
    def latest(self) -> bytes:
        for line in reversed(self.lines):
            if line.latest_size is not None:
                return str(json.loads(line.raw)["content"]).encode() + b"\n"
        return b""

    @property
    def cwd(self) -> str:
        return self.last("cwd", "/")


class StoreMachine(RuleBasedStateMachine):
    """The store's ids and sequences are its own; names, contents, order and references are the model's."""

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ctxfs-model-"))
        self.at = Harness(self.kind, self.directory)
        self.models: list[Model] = []
        self.current: str | None = None
        self.hashes: dict[str, str] = {}
        self.seq = 0

    def teardown(self) -> None:
        self.at.store.close()
        shutil.rmtree(self.directory)

    def live(self, name: str) -> Model | None:
        return next((model for model in self.models if model.name == name and not model.archived), None)

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def add(self, session: Session, lines: Sequence[Line]) -> None:
        model = Model(session.id, session.name, list(lines), self.next_seq())
        model.cwd_seq = model.seq if any(line.cwd for line in lines) else 0
        self.models.append(model)
        self.current = self.current or session.name

    def forget(self, model: Model) -> None:
        self.hashes = {key: name for key, name in self.hashes.items() if name != model.name}

    @initialize()
    def archive_directory(self) -> None:
        self.directory_id = self.at.archive().id

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if self.live(name):
            with pytest.raises(SessionAlreadyExistsError):
                self.at.session(name)
        else:
            self.add(self.at.session(name), [])

    @rule(
        batch=st.lists(st.tuples(NAMES, st.lists(LINES, max_size=3), st.sampled_from([None, None, 0, 1])), max_size=4)
    )
    def append(self, batch: list[tuple[str, list[Line], int | None]]) -> None:
        chosen = [(model, lines, expected) for name, lines, expected in batch if (model := self.live(name))]
        results = self.at.store.append([Append(model.id, lines, expected) for model, lines, expected in chosen])
        for (model, lines, expected), result in zip(chosen, results, strict=True):
            assert isinstance(result, Appended) == (expected in (None, len(model.lines)))
            if isinstance(result, CtxError) or not lines:
                continue
            model.lines += lines
            model.seq = self.next_seq()
            if any(line.cwd for line in lines):
                model.cwd_seq = model.seq

    @rule(parent=NAMES, name=NAMES, share=st.floats(0, 1))
    def branch(self, parent: str, name: str, share: float) -> None:
        model = self.live(parent)
        if model is None:
            return
        length = round(share * len(model.lines))
        if self.live(name):
            with pytest.raises(SessionAlreadyExistsError):
                self.at.store.branch_session(model.id, length, name)
        else:
            self.add(self.at.store.branch_session(model.id, length, name), model.lines[:length])

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        model = self.live(name)
        if model is not None:
            self.at.store.delete_session(model.id)
            self.models.remove(model)
            self.forget(model)
            self.current = None if self.current == name else self.current

    @rule(name=NAMES)
    def archive(self, name: str) -> None:
        model = self.live(name)
        if model is None:
            return
        taken = any(other.name == name for other in self.models if other.archived)
        if model.last("state", "idle") == "active" or name in ("default", self.current):
            with pytest.raises(Busy):
                self.at.store.archive_session(model.id, self.directory_id)
        elif taken:
            with pytest.raises(Exists):
                self.at.store.archive_session(model.id, self.directory_id)
        else:
            self.at.store.archive_session(model.id, self.directory_id)
            model.archived = True
            self.forget(model)

    @rule(name=NAMES)
    def select(self, name: str) -> None:
        if self.live(name):
            self.at.store.set_current(self.at.owner.id, name)
            self.current = name

    @rule(key=st.sampled_from(["k1", "k2"]), name=NAMES)
    def map(self, key: str, name: str) -> None:
        if self.live(name):
            self.at.store.set_mapping(self.at.owner.id, "by-hash", key, name)
            self.hashes[key] = name

    @rule(seconds=st.integers(-100, 100))
    def move_the_clock(self, seconds: int) -> None:
        self.at.clock.pass_seconds(seconds)

    @precondition(lambda self: self.kind != "memory")
    @rule()
    def restart(self) -> None:
        self.at.reopen()

    @invariant()
    def sessions_say_what_their_lines_say(self) -> None:
        for model in self.models:
            row = self.at.store.session_by_id(model.id)
            assert row is not None
            assert (row.n, row.state, row.cwd) == (len(model.lines), model.last("state", "idle"), model.cwd)
            assert self.at.stream(row, "messages") == model.stream("messages")
            assert self.at.stream(row, "events") == model.stream("events")
            assert (self.at.store.latest(row.id), row.latest_size) == (model.latest, len(model.latest))
            assert [entry.raw for entry in self.at.store.rows(row.id)] == [line.raw for line in model.lines]

    @invariant()
    def directories_hold_the_sessions(self) -> None:
        live = [model for model in self.models if not model.archived]
        archived = [model for model in self.models if model.archived]
        assert [row.id for row in self.at.store.sessions(self.at.owner.id)] == sorted(model.id for model in live)
        assert [row.id for row in self.at.store.archived_sessions(self.directory_id)] == sorted(
            model.id for model in archived
        )

    @invariant()
    def the_index_is_derived(self) -> None:
        live = [model for model in self.models if not model.archived]
        assert self.at.listed() == [model.name for model in sorted(live, key=lambda model: -model.seq)]
        by_cwd: dict[str, str] = {}
        for model in sorted(live, key=lambda model: model.cwd_seq):
            if model.cwd_seq:
                by_cwd[cwd_key(model.cwd)] = model.name
        assert self.at.mapped("by-cwd") == by_cwd
        assert self.at.mapped("by-hash") == self.hashes
        assert self.at.owner_now().current == self.current


@pytest.mark.parametrize("kind", ["sqlite", "memory", "jsonl"])
def test_a_store_says_what_the_model_says(kind: str) -> None:
    machine = type(f"{kind.title()}Machine", (StoreMachine,), {"kind": kind})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=25 if kind != "memory" else 100, stateful_step_count=25, deadline=None)
    )
