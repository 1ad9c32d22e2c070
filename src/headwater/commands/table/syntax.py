"""The syntax of every command that takes arguments; `headwater.commands.syntax` reads it.

COMMAND DOCS and docs/reference/commands.md are made from it. tests/conformance compares it with
what a real server says of the commands that it has.
"""

from __future__ import annotations

_EXPIRY = (
    "EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | "
    "PXAT unix-time-milliseconds:unix-time"
)
_REFERENCES = "[KEEPREF | DELREF | ACKED]"
_IDS = "IDS numids:integer id [id ...]"
_KILLED = (
    "<ID client-id:integer | TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB> | USER username | "
    "ADDR ip:port | LADDR ip:port | SKIPME <YES | NO> | MAXAGE maxage:integer>"
)
_RESULT = (
    "TO destination [<MAXLEN | MINID> [= | ~] threshold] <* | id> FIELDS numpairs:integer field value "
    "[field value ...]"
)

STREAMS = {
    "xadd": f"key [NOMKSTREAM] {_REFERENCES} [IDMPAUTO producer-id | IDMP producer-id iid] "
    "[<MAXLEN | MINID> [= | ~] threshold [LIMIT count:integer]] <* | id> field value "
    "[field value ...]",
    "xlen": "key",
    "xrange": "key start end [COUNT count:integer]",
    "xrevrange": "key end start [COUNT count:integer]",
    "xdel": "key id [id ...]",
    "xdelex": f"key {_REFERENCES} {_IDS}",
    "xtrim": f"key <MAXLEN | MINID> [= | ~] threshold [LIMIT count:integer] {_REFERENCES}",
    "xsetid": "key last-id [ENTRIESADDED entries-added:integer] [MAXDELETEDID max-deleted-id]",
    "xcfgset": "key [IDMP-DURATION seconds:integer] [IDMP-MAXSIZE count:integer]",
    "xidmprecord": "key producer-id iid id",
    "xread": "[COUNT count:integer] [MAXCOUNT count:integer] [MAXSIZE bytes:integer] "
    "[BLOCK milliseconds:integer] STREAMS key [key ...] id [id ...]",
    "xreadgroup": "GROUP group consumer [COUNT count:integer] [MAXCOUNT count:integer] "
    "[MAXSIZE bytes:integer] [BLOCK milliseconds:integer] [CLAIM min-idle-time:integer] [NOACK] "
    "STREAMS key [key ...] id [id ...]",
    "xack": "key group id [id ...]",
    "xackdel": f"key group {_REFERENCES} {_IDS}",
    "xnack": f"key group <SILENT | FAIL | FATAL> {_IDS} [RETRYCOUNT count:integer] [FORCE]",
    "xpending": "key group [[IDLE min-idle-time:integer] start end count:integer [consumer]]",
    "xclaim": "key group consumer min-idle-time id [id ...] [IDLE ms:integer] "
    "[TIME unix-time-milliseconds:unix-time] [RETRYCOUNT count:integer] [FORCE] [JUSTID] "
    "[LASTID lastid]",
    "xautoclaim": "key group consumer min-idle-time start [COUNT count:integer] [JUSTID]",
    "xgroup|create": "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read:integer]",
    "xgroup|createconsumer": "key group consumer",
    "xgroup|setid": "key group <id | $> [ENTRIESREAD entries-read:integer]",
    "xgroup|delconsumer": "key group consumer",
    "xgroup|destroy": "key group",
    "xinfo|groups": "key",
    "xinfo|consumers": "key group",
    "xinfo|stream": "key [FULL [COUNT count:integer]]",
    "xrenew": f"key group consumer [IDLE milliseconds:integer] {_IDS}",
    "xsettle": f"key group consumer <ACK | ACKDEL | SILENT | FAIL | FATAL> {_REFERENCES} "
    f"[DELAY milliseconds:integer] {_IDS} [{_RESULT} [{_RESULT} ...]]",
    "xretire": "key group consumer",
    "xsplit": "key start end parts:integer",
    "xlag": "key [group [group ...]]",
    "xdelayed": "key group [start end count:integer]",
}

KEYS = {
    **dict.fromkeys(("del", "unlink", "exists", "touch", "watch", "mget"), "key [key ...]"),
    **dict.fromkeys(
        ("type", "ttl", "pttl", "expiretime", "pexpiretime", "persist", "dump", "object|encoding",
         "object|freq", "object|idletime", "object|refcount", "get", "getdel", "incr", "decr",
         "strlen", "llen", "smembers", "scard", "hgetall", "hlen"),
        "key",
    ),
    "rename": "key newkey",
    "renamenx": "key newkey",
    "copy": "source destination [DB destination-db:integer] [REPLACE]",
    "move": "key db:integer",
    "expire": "key seconds:integer [NX | XX | GT | LT]",
    "pexpire": "key milliseconds:integer [NX | XX | GT | LT]",
    "expireat": "key unix-time-seconds:unix-time [NX | XX | GT | LT]",
    "pexpireat": "key unix-time-milliseconds:unix-time [NX | XX | GT | LT]",
    "restore": "key ttl:integer serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds:integer] "
    "[FREQ frequency:integer]",
    "keys": "pattern:pattern",
    "scan": "cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [TYPE type]",
    "swapdb": "index1:integer index2:integer",
    "flushdb": "[ASYNC | SYNC]",
    "flushall": "[ASYNC | SYNC]",
    "wait": "numreplicas:integer timeout:integer",
    "waitaof": "numlocal:integer numreplicas:integer timeout:integer",
}  # fmt: skip

VALUES = {
    "set": f"key value [NX | XX] [GET] [{_EXPIRY} | KEEPTTL]",
    "getex": f"key [{_EXPIRY} | PERSIST]",
    "setex": "key seconds:integer value",
    "psetex": "key milliseconds:integer value",
    "setnx": "key value",
    "append": "key value",
    "mset": "key value [key value ...]",
    "msetnx": "key value [key value ...]",
    "incrby": "key increment:integer",
    "decrby": "key decrement:integer",
    "lpush": "key element [element ...]",
    "rpush": "key element [element ...]",
    "lrange": "key start:integer stop:integer",
    "lpop": "key [count:integer]",
    "rpop": "key [count:integer]",
    "blpop": "key [key ...] timeout:double",
    "brpop": "key [key ...] timeout:double",
    "sadd": "key member [member ...]",
    "srem": "key member [member ...]",
    "sismember": "key member",
    "hset": "key field value [field value ...]",
    "hsetnx": "key field value",
    "hget": "key field",
    "hexists": "key field",
    "hmget": "key field [field ...]",
    "hdel": "key field [field ...]",
}

CONNECTION = {
    "hello": "[protover:integer [AUTH username password] [SETNAME clientname]]",
    "auth": "[username] password",
    "select": "index:integer",
    "ping": "[message]",
    "echo": "message",
    "client|list": "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] "
    "[ID client-id:integer [client-id:integer ...]]",
    "client|kill": f"<ip:port | {_KILLED} [{_KILLED} ...]>",
    "client|unblock": "client-id:integer [TIMEOUT | ERROR]",
    "client|pause": "timeout:integer [WRITE | ALL]",
    "client|setname": "connection-name",
    "client|setinfo": "<LIB-NAME libname | LIB-VER libver>",
    "client|reply": "<ON | OFF | SKIP>",
    "client|no-evict": "<ON | OFF>",
    "client|no-touch": "<ON | OFF>",
    "client|caching": "<YES | NO>",
    "acl|cat": "[category]",
    "acl|deluser": "username [username ...]",
    "acl|dryrun": "username command [arg [arg ...]]",
    "acl|genpass": "[bits:integer]",
    "acl|getuser": "username",
    "acl|log": "[count:integer | RESET]",
    "acl|setuser": "username [rule [rule ...]]",
    "subscribe": "channel [channel ...]",
    "psubscribe": "pattern:pattern [pattern:pattern ...]",
    "ssubscribe": "shardchannel [shardchannel ...]",
    "unsubscribe": "[channel [channel ...]]",
    "punsubscribe": "[pattern:pattern [pattern:pattern ...]]",
    "sunsubscribe": "[shardchannel [shardchannel ...]]",
    "publish": "channel message",
    "spublish": "shardchannel message",
    "pubsub|channels": "[pattern:pattern]",
    "pubsub|shardchannels": "[pattern:pattern]",
    "pubsub|numsub": "[channel [channel ...]]",
    "pubsub|shardnumsub": "[shardchannel [shardchannel ...]]",
}

SERVER = {
    "info": "[section [section ...]]",
    "command|info": "[command-name [command-name ...]]",
    "command|docs": "[command-name [command-name ...]]",
    "command|list": "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern:pattern>]",
    "command|getkeys": "command [arg [arg ...]]",
    "command|getkeysandflags": "command [arg [arg ...]]",
    "config|get": "parameter [parameter ...]",
    "config|set": "parameter value [parameter value ...]",
    "slowlog|get": "[count:integer]",
    "latency|history": "event",
    "latency|graph": "event",
    "latency|histogram": "[command [command ...]]",
    "latency|reset": "[event [event ...]]",
    "memory|usage": "key [SAMPLES count:integer]",
    "shutdown": "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
    "debug": "subcommand [arg [arg ...]]",
    "bgsave": "[SCHEDULE]",
    "replicaof": "<host port:integer | NO ONE>",
    "slaveof": "<host port:integer | NO ONE>",
    "script|flush": "[ASYNC | SYNC]",
    "function|flush": "[ASYNC | SYNC]",
    **dict.fromkeys(("eval", "eval_ro"), "script numkeys:integer [key ...] [arg ...]"),
    **dict.fromkeys(("evalsha", "evalsha_ro"), "sha1 numkeys:integer [key ...] [arg ...]"),
    "script|exists": "sha1 [sha1 ...]",
    "script|load": "script",
    "function|list": "[LIBRARYNAME library-name-pattern] [WITHCODE]",
}

CLUSTER = {
    "cluster|keyslot": "key:string",
    "cluster|countkeysinslot": "slot:integer",
    "cluster|getkeysinslot": "slot:integer count:integer",
    "cluster|slot-stats": "<SLOTSRANGE start-slot:integer end-slot:integer | "
    "ORDERBY metric [LIMIT limit:integer] [ASC | DESC]>",
    **dict.fromkeys(
        ("cluster|replicas", "cluster|slaves", "cluster|count-failure-reports",
         "cluster|replicate", "cluster|forget"),
        "node-id",
    ),
    "cluster|meet": "ip port:integer [cluster-bus-port:integer]",
    "cluster|failover": "[FORCE | TAKEOVER]",
    "cluster|reset": "[HARD | SOFT]",
    "cluster|addslots": "slot:integer [slot:integer ...]",
    "cluster|delslots": "slot:integer [slot:integer ...]",
    **dict.fromkeys(
        ("cluster|addslotsrange", "cluster|delslotsrange"),
        "start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]",
    ),
    "cluster|setslot": "slot:integer "
    "<IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
    "cluster|set-config-epoch": "config-epoch:integer",
}  # fmt: skip

SYNTAX: dict[str, str] = STREAMS | KEYS | VALUES | CONNECTION | SERVER | CLUSTER
"""What stands behind a command's name, by its full lower-case name."""
