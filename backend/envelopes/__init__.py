"""cosh-core's store of provider sessions, and its protocol ``--session-control`` (spec 5).

``errors`` and ``texts`` say what reaches a client, ``redaction`` what must not; ``configuration`` and ``places`` find
the store; ``directories`` is the only module that touches its files. ``stored`` removes files that nobody looks into
(``closing`` frees several at once), ``documents`` and ``sessions`` read what they hold (``dense`` many messages at
once, ``strict`` JSON as a whole), ``store`` is the store itself, and ``control`` answers one request.

An answer must not wait for imports: nothing but the standard library is imported before a session of more than 256 KiB
is read, and of that neither ``hashlib`` nor ``typing``: hence records that are ``SimpleNamespace``. To plan and to
clear, which is a process for each 128 sessions, neither ``re`` (so no ``json``) nor ``contextlib`` is imported.
"""
