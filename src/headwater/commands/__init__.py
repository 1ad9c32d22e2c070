"""The commands on keys. A command is a function of a `Call`: it chooses first and then calls mutators.

A module is named after its command or its family: ``xclaim`` holds XCLAIM and XAUTOCLAIM, ``keys`` the
commands on keys of any type, ``values`` strings, lists, sets and hashes. ``table`` declares all commands,
those of the server included, and names their functions.
"""
