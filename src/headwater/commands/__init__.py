"""The commands on keys. A command is a function of a `Call`: it decides what to do, then calls mutators.

A module is named after its command or family: ``xclaim`` has XCLAIM and XAUTOCLAIM, ``keys`` has the commands
on keys of any type, ``values`` those on strings, lists, sets and hashes. ``table`` declares all commands,
including those of the server, and names their functions.
"""
