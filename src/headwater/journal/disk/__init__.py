"""Files as the journal uses them: reads, writes, locks, copies, and refusals of the operating system.

It does not depend on records or file names. It imports no other room. Start with files.py. Tests replace its class
`Files` by a file system that crashes.
"""
