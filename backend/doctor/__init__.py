"""Looking for what is wrong with sessions and with what is derived from them (spec 2.7, 4.1). Repairs nothing.

``sessions`` reads a log from its first line to its last, ``owners`` compares an index with the sessions it is of,
``faults`` is what they report. All are asked of a live store a little at a time (``backend.asking``), while others
write: a session is judged as it was when it was looked up, and what may be a race is looked at again in one piece.
"""
