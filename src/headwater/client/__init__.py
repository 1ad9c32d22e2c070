"""Clients: redis-py over TCP, TLS, a unix socket, or to an embedded store in this process.

sync | aio          subclasses of redis.Redis | of redis.asyncio.Redis
  connect           `headwater.connect` | `headwater.aio.connect`
  client            redis-py's client, with the recovery report of an embedded store
  guarded           connections that repeat a command only if running it twice does no harm
  embedded          a socket | a stream without a network
  loop_timer        (aio) ticks an embedded store at its deadlines
  cluster           clients of clusters
  sentinel          connections to the primary that Sentinels name

Shared by both; these modules hold no connection:

opening             chooses the client for a url and its arguments
drivers             run procedures: generators that yield the calls to make
server_url          parses the urls of servers
redaction           removes secrets from urls
direct              a connection without redis-py, for programs that must start fast

guarded             what to do after a failure
attempts            what an attempt has sent, and whether it may be sent again
repeatable          which commands may run twice, and how long each may block

cluster_calls       the calls of a cluster client
routing             which node of a cluster gets which command
slots               slot owners and first keys
primary             which server the Sentinels name

embedded_opening    opens the store that a url names
embedded_url        parses headwater:// urls
embedded_store      a node that runs in this process
embedded_transport  the client's end of a session
handles             counts the clients of each embedded store
reentrancy          guards of a turn
"""
