"""Clients of a store: redis-py over TCP, TLS, a unix socket, or into a store in this process.

sync | aio          subclasses of redis.Redis | of redis.asyncio.Redis
  connect           `headwater.connect` | `headwater.aio.connect`
  client            redis-py's client, with what opening the store found
  guarded           connections that send nothing twice that must run once
  embedded          a socket | a stream without a network
  loop_timer        (aio) ticks a store in this process at its deadlines
  cluster           clients of clusters
  sentinel          connections to the primary that Sentinels name

What both decide, without a connection:

opening             which client a url asks for, and what it is made with
drivers             carry out procedures: generators that yield the calls to be made
server_url          what the url of servers says
redaction           urls without their secrets

guarded             what is done after a failure
attempts            what was sent in an attempt, and whether it may be sent again
repeatable          which commands may run twice, and how long each asks to wait

cluster_calls       the calls of a client of a cluster
routing             which node of a cluster gets which command
slots               owners of slots, first keys
primary             which server the Sentinels name

embedded_opening    opens the store that a url names
embedded_url        what a headwater:// url says
embedded_store      nodes opened in this process
embedded_transport  the client's end of a session
handles             who uses which store, and until when
reentrancy          guards of a turn
"""
