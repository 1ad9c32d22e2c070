"""Access control: users and their rules, the check before a command, and the log of refusals.

rules.py          applies the rules of ``ACL SETUSER``
permissions.py    decides whether a user may run a request
access.py         all users of a node, and their authentication
authorization.py  logs sessions in, checks their requests, records refusals
login_delays.py   delays the replies to failed logins
changes.py        applies changes of users to open connections
log.py            stores refusals for ACL LOG
file.py           reads and writes users in a file

`headwater.server.session.user` has users and selectors.
"""
