"""Clients of a store: redis-py over TCP, TLS, a unix socket, or into a store in this process.

    embedded_url    what a headwater:// url says
    server_url      what the url of servers says
    redaction       urls without their secrets
    drivers         carry out procedures that are written once, in threads and in asyncio
    repeatable      which commands may run twice, and how long each asks to wait
    attempts        what was sent in an attempt, and whether it may be sent again
    guarded         connections that ask `attempts`
    embedded_store  nodes opened in this process
    handles         who uses them, and until when
    reentrancy      guards of a turn
    embedded_transport  the client's end of a session in such a store
    routing         which node of a cluster gets which command
    slots           owners of slots, first keys
    primary         the primary that Sentinels name

    sync            redis.Redis                         aio    redis.asyncio.Redis
      connect       a url becomes a client
      guarded       a connection that keeps the rules of `guarded`
      embedded      a socket without a network                 a stream without a network
      loop_timer                                               ticks a store from an event loop
      cluster       a client of a cluster
      sentinel      a connection to the primary that Sentinels name

`headwater.connect` and `headwater.aio.connect` are the public names.
"""
