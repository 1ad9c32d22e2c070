"""Lua scripts: EVAL and its kin, run by lupa (the extra ``lua``).

interpreter  a Lua state that can reach nothing but what a script may
prelude.lua  what a script sees: redis, the safe part of the standard library, cjson
calls        what redis.call does: the gates of a command, the command, its reply
values       replies to Lua values and back
cache        scripts by the SHA-1 of their text
"""
