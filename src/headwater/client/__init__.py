"""Clients of a store: redis-py over TCP, TLS, a unix socket, or into a store in this process.

    embedded_url    what a headwater:// url says      connect      url → redis.Redis
    server_url      what the url of servers says      aio          url → redis.asyncio.Redis
    redaction       urls without their secrets

    safety          what may be sent twice, and how long to wait
    guarded         a connection that keeps those rules; guarded_aio

    embedded_store  nodes opened in this process      embedded     a socket without a network
    handles         who uses them, and until when     embedded_aio a stream without a network
    reentrancy      guards of a turn

    routing         which node of a cluster gets which command
    slots           owners of slots, first keys       cluster      a client of a cluster; cluster_aio
                                                      sentinel     the primary that Sentinels name;
                                                                   sentinel_aio

`headwater.connect` and `headwater.aio.connect` are the public names.
"""
