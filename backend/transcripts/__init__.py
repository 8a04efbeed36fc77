"""Foreign transcripts as lines of sessions (spec 4.2, import): one module per format, pure, one pass.

A format of files has ``identify(file, stem)`` and ``convert(file, scope)``; ``cortexfs`` has the same for a directory.
``convert`` yields ``records.Record``: lines, lines that cannot be read, and where a child begins. Converting the same
source twice gives the same records, so an import can be repeated; a source that has grown gives the old lines again.
Memory is bounded by a line, but for what a tree of messages needs: some 300 bytes for each line that others may follow.
"""
