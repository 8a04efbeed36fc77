"""Who may do what (spec 1.8), as pure functions of uids; the kernel checks modes beside this.

Attributes never depend on the caller. These checks come on top, at open and at every change of a name, with the
uid of the opener; nothing here may need a pid or the user database.
"""

import errno
import stat

import msgspec
from pyfuse3 import FUSEError


class Access(msgspec.Struct, frozen=True, gc=False):
    """Whose a file is: owner, group, whether it lies in a shared space, and whether it is archived."""

    uid: int
    gid: int
    shared: bool = False
    archived: bool = False


class Modes(msgspec.Struct, frozen=True, gc=False):
    """The mode bits, type included, of one kind of file: private, shared, and archived either way."""

    private: int
    shared: int
    private_archived: int
    shared_archived: int

    def of(self, access: Access) -> int:
        if access.archived:
            return self.shared_archived if access.shared else self.private_archived
        return self.shared if access.shared else self.private


def _regular(*modes: int) -> Modes:
    return Modes(*(stat.S_IFREG | mode for mode in modes))


def _directory(*modes: int) -> Modes:
    return Modes(*(stat.S_IFDIR | mode for mode in modes))


DIRECTORY = _directory(0o700, 0o2770, 0o700, 0o2770)
SESSION_DIRECTORY = _directory(0o700, 0o2770, 0o500, 0o2550)
EDITABLE = _regular(0o600, 0o660, 0o400, 0o440)
DERIVED = _regular(0o400, 0o440, 0o400, 0o440)
PUBLIC_DIRECTORY = _directory(*[0o755] * 4)
PUBLIC_EDITABLE = _regular(*[0o644] * 4)
PUBLIC_DERIVED = _regular(*[0o444] * 4)
SOCKET = Modes(*[stat.S_IFSOCK | 0o666] * 4)


def check_space(access: Access, uid: int) -> None:
    """A home is its uid's; uid 0 passes. Members of shared spaces were checked by the kernel."""
    if not access.shared and uid not in (0, access.uid):
        raise FUSEError(errno.EACCES)


def check_creator(access: Access, uid: int) -> None:
    """Archiving, deleting and compacting is for a session's creator and uid 0."""
    if uid not in (0, access.uid):
        raise FUSEError(errno.EPERM)


def check_admin(mounter: int, uid: int) -> None:
    """Shared spaces and definitions are uid 0's, or the mounter's of a user mount."""
    if uid not in (0, mounter):
        raise FUSEError(errno.EACCES)
