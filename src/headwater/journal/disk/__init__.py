"""Files as the journal uses them: reads, writes, locks, copies, and refusals of the operating system.

It does not depend on records or file names, and imports no other package of the journal. Start with files.py.
Tests use an implementation of `Files` in memory that can crash.
"""
