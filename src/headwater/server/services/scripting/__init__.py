"""Lua scripts: EVAL and related commands, executed by lupa (the extra ``lua``).

cache         scripts by the SHA-1 of their text
calls         one run of a script, and redis.call: checks, the command, its reply
values        converts replies to Lua values and back, in Python; replies.lua is the Lua part
interpreter   a Lua state that is isolated from Python and from the system
prelude.lua   the globals of scripts: redis, the safe part of the standard library, cjson
bounded.lua   Lua functions that might run too long in C, with bounds
patterns.lua  parses Lua's patterns and estimates the number of steps that C needs for them
matching.lua  find, match, gmatch and gsub for patterns that may need too many steps
matcher.lua   matches Lua's patterns in Lua
"""
