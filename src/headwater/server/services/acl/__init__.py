"""Who may do what: users and their rules, the check before a command, and the log of refusals.

rules.py          what ``ACL SETUSER`` is told, word by word
permissions.py    may this request run, by this user?
access.py         all users of a node, and how they authenticate
authorization.py  logins and checks of sessions, and what they were refused
login_delays.py   how long the reply to a refused login waits
changes.py        what a change of users does to connections that are there
log.py            refusals, as ACL LOG shows them
file.py           users in a file

A user and its selectors are `headwater.server.session.user`.
"""
