"""One door to a store: redis-py over TCP, TLS, a unix socket, or into a store in this process.

    address    what a url says                safety      what may be sent twice, how long to wait
    connect    url → redis.Redis              guarded     a connection that keeps those rules
    aio        url → redis.asyncio.Redis      guarded_aio the same for asyncio
    stores     nodes opened in this process   embedded    a socket without a network
                                              embedded_aio a stream without a network

    servers    what the url of servers says   routing     which node of a cluster gets which command
    slots      owners of slots, first keys    cluster     a client of a cluster; cluster_aio
                                              sentinel    the primary that Sentinels name; sentinel_aio

`headwater.connect` and `headwater.aio.connect` are the public names.
"""
