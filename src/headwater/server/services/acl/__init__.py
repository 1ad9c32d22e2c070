"""Who may do what: users and their rules, the check before a command, and the log of refusals.

rules.py        what ``ACL SETUSER`` is told, word by word
users.py        what comes of it: a user and its selectors
permissions.py  may this request run, by this user?
access.py       all users of a node, and how they authenticate
living.py       what a change of users does to connections that are there
log.py          refusals, as ACL LOG shows them
file.py         users in a file
"""
