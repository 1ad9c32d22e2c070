"""Clients: redis-py over TCP, TLS or a unix socket, or for an embedded store in this process.

sync | aio          subclasses of redis.Redis | of redis.asyncio.Redis
  connect           `headwater.connect` | `headwater.aio.connect`
  client            redis-py's client, with the recovery report of an embedded store
  guarded           connections that repeat a command only if running it twice is harmless
  embedded          a socket | a stream without a network
  cluster           clients of clusters
  owner             (sync) a client of the node that owns one key
  sentinel          connections to the primary that Sentinels name

The other modules. Except `direct`, they are shared by sync and aio:

opening             chooses the client for a url and its arguments
drivers             run procedures: generators that yield the calls to make
server_url          parses the urls of servers
redaction           removes secrets from urls
direct              a connection without redis-py, for programs that must start fast

guarded             the retry policy of a connection
attempts            tracks the commands of an attempt; decides whether they may be sent again
repeatable          lists the commands that may run twice; reads how long a command may block
silence             measures how long a connection has been silent

cluster_calls       the calls of a cluster client
routing             chooses the node of a cluster for each command
slots               slot owners and first keys
primary             finds the primary that Sentinels name

embedded_opening    opens the store that a url names
embedded_url        parses headwater:// urls
embedded_store      a node that runs in this process
embedded_transport  the client's end of a session
handles             counts the clients of each embedded store
reentrancy          guards a turn against signals and finalizers
"""
