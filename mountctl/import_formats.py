"""The formats that ``ctx agent session import`` reads: a table, and what each makes of a path (spec 4.2).

The formats themselves are modules of ``backend.transcripts``, pure; this is where their sources are found and opened.
"""

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, NoReturn, Protocol, cast

from backend.transcripts import claude_code, codex, cortexfs, cosh, jsonl
from backend.transcripts.records import Converted, Identity, Record
from mountctl.cli import Failure
from mountctl.text import escaped_name

Progress = Callable[[int], None]


class Format(Protocol):
    """What an import needs of a format. A source is the path of what holds one session, its children included."""

    def sources(self, path: str) -> Iterator[str]:
        """What ``path`` holds, the most recent last, so that it leads index/list (``OSError``, ``Failure``)."""
        ...

    def size(self, source: str) -> int:
        """Bytes that ``convert`` reads."""
        ...

    def part(self, line: Converted) -> str:
        """The file below the source that a line is from; empty where the source is the file."""
        ...

    def identify(self, source: str) -> Identity: ...
    def convert(self, source: str, scope: str, progress: Progress) -> Iterator[Record]:
        """``progress`` is called with the number of bytes read so far."""
        ...


class FileModule(Protocol):
    """A module of ``backend.transcripts`` for a format whose sources are files."""

    def identify(self, file: BinaryIO, stem: str) -> Identity: ...
    def convert(self, file: BinaryIO, scope: str) -> Iterator[Record]: ...


class Files:
    """A format of files, one a session; in a directory those that ``pattern`` names."""

    def __init__(self, module: FileModule, pattern: str = "*.jsonl") -> None:
        self._module = module
        self._pattern = pattern

    def sources(self, path: str) -> Iterator[str]:
        if not stat.S_ISDIR(mode := os.stat(path).st_mode):
            if not stat.S_ISREG(mode):
                raise Failure(f"{escaped_name(path)} is neither a file nor a directory")
            yield path
            return
        found = sorted(_files(path, self._pattern))
        if not found:
            raise Failure(f"{path} has no {self._pattern.removeprefix('*')} file")
        yield from (file for _, file in found)

    def size(self, source: str) -> int:
        return os.path.getsize(source)

    def part(self, line: Converted) -> str:
        del line
        return ""

    def identify(self, source: str) -> Identity:
        stem = os.path.splitext(os.path.basename(source))[0]
        with open(source, "rb") as file:
            return self._module.identify(file, stem)

    def convert(self, source: str, scope: str, progress: Progress) -> Iterator[Record]:
        with open(source, "rb") as file:
            for record in self._module.convert(file, scope):
                progress(file.tell())
                yield record


def _files(directory: str, pattern: str) -> Iterator[tuple[int, str]]:
    """The mtimes (ns) and paths of files below a directory; links to directories are not followed (``OSError``)."""
    for base, _, names in os.walk(directory, onerror=_raise):
        for path in (f"{base}/{name}" for name in fnmatch.filter(names, pattern)):
            if os.path.isfile(path):
                yield os.stat(path).st_mtime_ns, path


def _raise(error: OSError) -> NoReturn:
    raise error


class Trees:
    """The format of directories, one a session."""

    def sources(self, path: str) -> Iterator[str]:
        os.stat(path)
        found = list(cortexfs.sources(path))
        if not found:
            raise Failure(f"{path} has no session: no directory with a {cortexfs.MESSAGES}")
        yield from found

    def size(self, source: str) -> int:
        return cortexfs.size(source)

    def part(self, line: Converted) -> str:
        return f"{line.stream}.jsonl"

    def identify(self, source: str) -> Identity:
        return cortexfs.identify(source)

    def convert(self, source: str, scope: str, progress: Progress) -> Iterator[Record]:
        return cortexfs.convert(source, scope, progress)


_COSH_FILES = "-".join("[0-9a-f]" * digits for digits in (8, 4, 4, 4, 12)) + ".json"

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "claude-code": Files(cast(FileModule, claude_code)),
        "codex": Files(cast(FileModule, codex)),
        "cortexfs": Trees(),
        "cosh": Files(cast(FileModule, cosh), _COSH_FILES),
        "jsonl": Files(cast(FileModule, jsonl)),
    }
)
