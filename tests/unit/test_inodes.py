"""Inode numbers: a kind and an id in 64 bits, and numbers for what has none."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ctxfs.files.passthrough_inodes import DISK_TAG
from ctxfs.inodes import INTERNED, ROOT_INODE, Interned, Kind, Node, inode_of, node_of
from ctxfs.table import TABLE

IDS = st.integers(1, (1 << 48) - 1)


@given(kind=st.sampled_from(Kind), id=IDS)
def test_a_node_comes_back(kind: Kind, id: int) -> None:
    assert node_of(inode_of(Node(kind, id))) == Node(kind, id)


@given(one=st.tuples(st.sampled_from(Kind), IDS), other=st.tuples(st.sampled_from(Kind), IDS))
def test_two_nodes_never_share_a_number(one: tuple[Kind, int], other: tuple[Kind, int]) -> None:
    assert (inode_of(Node(*one)) == inode_of(Node(*other))) == (one == other)


@given(kind=st.sampled_from(Kind), id=IDS)
def test_numbers_of_the_tree_are_none_of_the_disk_and_positive(kind: Kind, id: int) -> None:
    assert 0 < inode_of(Node(kind, id)) < DISK_TAG


def test_the_root_is_inode_1() -> None:
    assert inode_of(Node(Kind.ROOT, 1)) == ROOT_INODE == 1


def test_kinds_are_numbered_without_gaps_and_each_has_a_row() -> None:
    assert [kind.value for kind in Kind] == list(range(len(Kind)))
    assert set(TABLE) == set(Kind) - {Kind.TEMPORARY}
    assert set(TABLE) > INTERNED


class InternedMachine(RuleBasedStateMachine):
    """Against a plain model: key → (number, lookups). ``untold`` is what the next new number takes the place of."""

    def __init__(self) -> None:
        super().__init__()
        self.interned: Interned[str] = Interned()
        self.known: dict[str, int] = {}
        self.lookups: dict[str, int] = {}
        self.used: set[int] = set()
        self.untold: str | None = None

    @rule(key=st.sampled_from("abcd"))
    def look_up(self, key: str) -> None:
        number = self.interned.id(key)
        if key in self.known:
            assert number == self.known[key]
        else:
            assert number not in self.used
            if self.untold is not None:
                del self.known[self.untold], self.lookups[self.untold]
            self.untold = key
            self.known[key], self.lookups[key] = number, 0
            self.used.add(number)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def remember(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        self.interned.remember(self.known[key])
        self.lookups[key] += 1
        if key == self.untold:
            self.untold = None

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        count = data.draw(st.integers(0, self.lookups[key]))
        gone = self.interned.forget(self.known[key], count)
        self.lookups[key] -= count
        assert gone == (self.lookups[key] == 0)
        if gone:
            del self.known[key], self.lookups[key]
            if key == self.untold:
                self.untold = None

    @invariant()
    def agrees(self) -> None:
        assert len(self.interned) == len(self.known)
        for key in "abcd":
            assert self.interned.known(key) == self.known.get(key)
        for number in self.used:
            keys = [key for key, known in self.known.items() if known == number]
            assert self.interned.key(number) == (keys[0] if keys else None)


TestInterned = InternedMachine.TestCase
TestInterned.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
