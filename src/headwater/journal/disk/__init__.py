"""Files as the journal uses them: reads, writes, locks, copies, and what the operating system refuses.

It knows no record and no name of a file. It imports no other room. Start with files.py, whose class `Files` tests
replace by a file system that crashes.
"""
