// The script's operations through node-redis, with RESP3, which HELLO requests.
'use strict';

const { createClient } = require('redis');
const { place, serve } = require('./serve.js');

const { host, port, tls } = place();
const client = createClient({ RESP: 3, socket: tls ? { host, port, tls: true, ...tls } : { host, port } });
client.on('error', () => {}); // It reconnects by itself; the failed command reports the error.

const verbs = {
  ping: () => client.ping(),
  add: (stream, id, fields) => client.xAdd(stream, id, fields),
  length: (stream) => client.xLen(stream),
  entries: (stream) => client.xRange(stream, '-', '+'),
  create_group: (stream, group) => client.xGroupCreate(stream, group, '0', { MKSTREAM: true }),
  read_group: (stream, group, consumer, count) =>
    client.xReadGroup(group, consumer, { key: stream, id: '>' }, { COUNT: count }),
  pending: (stream, group) => client.xPending(stream, group),
  pending_range: (stream, group) => client.xPendingRange(stream, group, '-', '+', 10),
  claim: (stream, group, consumer, id) => client.xClaim(stream, group, consumer, 0, id),
  autoclaim: (stream, group, consumer, idle) =>
    client.xAutoClaim(stream, group, consumer, idle, '0-0'),
  ack: (stream, group, id) => client.xAck(stream, group, id),
  nack: (stream, group, id) => client.sendCommand(['XNACK', stream, group, 'FAIL', 'IDS', '1', id]),
  groups: (stream) => client.xInfoGroups(stream),
  wait: (stream, last, block) => client.xRead({ key: stream, id: last }, { BLOCK: block }),
  set_text: (key) => client.set(key, 'x'),
  transaction: (stream) => client.multi().xAdd(stream, '9-1', { item: 'mug' }).xLen(stream).exec(),
};

client.connect().then(() => serve(verbs, () => client.destroy()));
