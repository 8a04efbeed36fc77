"""Full-text search over sessions: an index beside the log that is a view of it, and can be dropped at any time.

``texts`` says what of an entry is searched, ``query`` what a search means, ``index`` holds the words of one owner's
sessions, ``update`` brings it up to date, ``snippets`` shows where an entry matches. The index holds no text: it leads
to entries, and what is shown is read from the log (design, Architecture 1). An append knows nothing of it: it is
brought up to date when somebody searches, from where it stopped.
"""
