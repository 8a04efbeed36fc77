"""The derived files of the sessions whose ``context/`` somebody looked at lately (spec 1.7).

``backend.derived`` knows what is in them; here is which sessions are kept in mind, how many, and that looking at a long
log for the first time lets other requests go first. Once a session is kept, an append costs its four files what was
appended; what is not kept costs an append nothing. The kernel knows attributes only of what is kept: what is dropped
it must ask for again. FUSE thread only.
"""

from collections import Counter, OrderedDict
from functools import partial

from backend.derived import Derived, File, View, mtime
from backend.rows import Session
from ctxfs.commits import Commits
from ctxfs.kernel_cache import KernelCache
from ctxfs.subjects import Subjects

MOST_SESSIONS = 512
MOST_BYTES = 16 << 20


class Contexts:
    """Those used last; beside them any whose files are open, or being looked at for the first time.

    ``writers``: how many have a log of a session open and may append, by its number.
    """

    def __init__(self, subjects: Subjects, commits: Commits, kernel: KernelCache) -> None:
        self.writers: Counter[int] = Counter()
        self._subjects = subjects
        self._commits = commits
        self._kernel = kernel
        self._kept: OrderedDict[int, Derived] = OrderedDict()
        self._in_use: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """How many sessions are kept."""
        return len(self._kept)

    async def ready(self, number: int, file: File) -> None:
        """Looks at what was appended; until the caller awaits again, ``view`` then costs nothing."""
        if not self._is_behind(number, file):
            return
        self.use(number)
        try:
            while self._is_behind(number, file):
                self._advance(number, file)
                if self._is_behind(number, file):
                    await self._commits.others_first()
        finally:
            self.leave(number)

    async def known_ready(self, number: int) -> None:
        """``ready`` for the files that were looked at before, and for the one that need not be there."""
        await self.ready(number, "request.json")
        for file in ("log.jsonl", "transcript.md"):
            if self.knows(number, file):
                await self.ready(number, file)

    def view(self, session: Session, file: File) -> View | None:
        """The file as of now, None where there is none."""
        if _has_no_request(session, file):
            return None
        while self._is_behind(session.id, file):
            self._advance(session.id, file)
        return self._kept[session.id].view(file)

    def present(self, session: Session, file: File) -> View:
        """The file as of now, which is there."""
        view = self.view(session, file)
        assert view is not None, f"context/{file} is there for the kernel only"
        return view

    def mtime(self, session: Session, file: File) -> int:
        """When the file last changed, ns."""
        return mtime(file, self.present(session, file), session)

    def knows(self, number: int, file: File) -> bool:
        """Whether the file was looked at before."""
        derived = self._kept.get(number)
        return derived is not None and derived.knows(file)

    async def read(self, number: int, file: File, offset: int, size: int) -> bytes:
        """Bytes of the file as it is when this returns, fewer only at its end."""
        await self.ready(number, file)
        view = self.present(self._subjects.session(number).session, file)
        changes, pieces = view.changes, list[bytes]()
        for piece in view.read(offset, size):
            if pieces:
                await self._commits.others_first()
            pieces.append(piece)
        now = self.present(self._subjects.session(number).session, file)
        if now is not view or now.changes != changes:
            # The kernel may know the new size already: it would keep these bytes, and zeros behind them, as the file.
            return b"".join(now.read(offset, size))
        return b"".join(pieces)

    def use(self, number: int) -> None:
        """Keeps a session while it is used: until as many ``leave``."""
        self._in_use[number] += 1

    def leave(self, number: int) -> None:
        self._in_use[number] -= 1
        if not self._in_use[number]:
            del self._in_use[number]
            self._drop_oldest()

    def forget(self, number: int) -> None:
        """Drops what is known of a session: it was deleted, or a file is to be made anew."""
        if self._kept.pop(number, None) is not None:
            self._bytes -= self._sizes.pop(number)
            self._kernel.context_forgotten(number)

    def _is_behind(self, number: int, file: File) -> bool:
        session, derived = self._subjects.session(number).session, self._kept.get(number)
        if derived is None or derived.is_behind(file, session.n):
            return not _has_no_request(session, file)
        self._kept.move_to_end(number)
        return False

    def _advance(self, number: int, file: File) -> None:
        session = self._subjects.session(number).session
        derived = self._kept.get(number)
        if derived is None:
            derived = Derived(partial(self._subjects.store.rows, number), session.name)
            self._kept[number] = derived
            self._kernel.context_shown(number)
        try:
            derived.advance(file, session.n)
        finally:
            self._bytes += derived.memory - self._sizes.get(number, 0)
            self._sizes[number] = derived.memory
            self._kept.move_to_end(number)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._kept) > MOST_SESSIONS or self._bytes > MOST_BYTES:
            *older, _ = self._kept
            unused = next((number for number in older if number not in self._in_use), None)
            if unused is None:
                return
            self.forget(unused)


def _has_no_request(session: Session, file: File) -> bool:
    """What every walk through a tree would otherwise read whole logs for."""
    return file == "request.json" and session.events_size == 0
