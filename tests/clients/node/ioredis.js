// The script's operations through ioredis.
'use strict';

const Redis = require('ioredis');
const { place, serve } = require('./serve.js');

const client = new Redis(place());
client.on('error', () => {}); // It reconnects by itself; the failed command reports the error.

serve(
  {
    ping: () => client.ping(),
    add: (stream, id, fields) => client.xadd(stream, id, ...Object.entries(fields).flat()),
    length: (stream) => client.xlen(stream),
    entries: (stream) => client.xrange(stream, '-', '+'),
    create_group: (stream, group) => client.xgroup('CREATE', stream, group, '0', 'MKSTREAM'),
    read_group: (stream, group, consumer, count) =>
      client.xreadgroup('GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>'),
    pending: (stream, group) => client.xpending(stream, group),
    pending_range: (stream, group) => client.xpending(stream, group, '-', '+', 10),
    claim: (stream, group, consumer, id) => client.xclaim(stream, group, consumer, 0, id),
    autoclaim: (stream, group, consumer, idle) =>
      client.xautoclaim(stream, group, consumer, idle, '0-0'),
    ack: (stream, group, id) => client.xack(stream, group, id),
    nack: (stream, group, id) => client.call('XNACK', stream, group, 'FAIL', 'IDS', 1, id),
    groups: (stream) => client.xinfo('GROUPS', stream),
    wait: (stream, last, block) => client.xread('BLOCK', block, 'STREAMS', stream, last),
    set_text: (key) => client.set(key, 'x'),
    transaction: (stream) => client.multi().xadd(stream, '9-1', 'item', 'mug').xlen(stream).exec(),
  },
  () => client.disconnect(),
);
