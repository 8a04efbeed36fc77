"""cosh-core's store of provider sessions, and its protocol ``--session-control`` (spec 5).

``errors`` and ``texts`` say what reaches a client, ``redaction`` what must not; ``configuration`` and ``places`` find
the store; ``directories`` is the only module that touches its files, ``documents`` and ``sessions`` read what they
hold, ``store`` is the store itself, and ``control`` answers one request. Nothing here imports more than the standard
library before a session of more than 256 KiB is read: an answer must not wait for imports.
"""
