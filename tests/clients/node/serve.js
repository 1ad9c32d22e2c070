// Lets a test control a client of node: a request is a line of JSON on standard input, [number, verb,
// arguments]; its reply is a line on standard output, [number, "ok" or "error", value].
'use strict';

const fs = require('fs');
const readline = require('readline');

// The address to connect to, from the command line.
exports.place = function place() {
  const address = JSON.parse(process.argv[2]);
  const tls = address.ca && {
    ca: fs.readFileSync(address.ca),
    cert: fs.readFileSync(address.cert),
    key: fs.readFileSync(address.key),
  };
  return { host: address.host, port: address.port, tls };
};

exports.serve = function serve(verbs, close) {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', async (line) => {
    const [number, verb, args] = JSON.parse(line);
    let answer;
    try {
      answer = [number, 'ok', await verbs[verb](...args)];
    } catch (error) {
      answer = [number, 'error', `${error.name}: ${error.message}`];
    }
    process.stdout.write(`${JSON.stringify(answer, plain)}\n`);
  });
  lines.on('close', close);
  process.stdout.write('"ready"\n');
};

// Converts mappings and objects without a prototype for JSON.
function plain(_name, value) {
  return value instanceof Map ? Object.fromEntries(value) : value;
}
