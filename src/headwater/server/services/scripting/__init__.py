"""Lua scripts: EVAL and its kin, run by lupa (the extra ``lua``).

cache         scripts by the SHA-1 of their text
calls         one run of a script, and what redis.call does: checks, the command, its reply
values        replies to Lua values and back: the side of Python; replies.lua has the other
interpreter   a Lua state that can reach nothing but what a script may
prelude.lua   what a script sees: redis, the safe part of the standard library, cjson
bounded.lua   the functions of Lua that C would not end, bounded
patterns.lua  Lua's patterns taken apart, and how many steps C may need for one
matching.lua  find, match, gmatch and gsub for patterns that may need too many
matcher.lua   Lua's patterns matched in Lua
"""
