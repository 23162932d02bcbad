// HTTP/2 clients over TLS: `node load_http2.mjs URL CA`. For each line of input, prints a line after 20 more responses.
// At the end of the input, stops and prints the totals.
import fs from "node:fs";
import http2 from "node:http2";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const [url, ca] = process.argv.slice(2);
const options = { ca: fs.readFileSync(ca), servername: "localhost" };
const totals = { answered: 0, handshakes: 0, failures: [] };
const wakes = [];
let stopped = false;

function fail(error) {
  totals.failures.push(String(error.stack ?? error));
}

function connect() {
  return new Promise((resolve) => {
    const session = http2.connect(url, options);
    session.on("error", fail);
    session.once("connect", () => {
      totals.handshakes += 1;
      resolve(session);
    });
    session.once("close", () => resolve(session));
  });
}

/** Sends a request. A server may ignore streams after its GOAWAY (RFC 9113 section 6.8), so these are no failures. */
function ask(session) {
  return new Promise((resolve) => {
    if (session.closed || session.destroyed) return resolve();
    const stream = session.request({ ":path": "/plain" });
    let text = "";
    let head = {};
    stream.setEncoding("utf8");
    stream.on("response", (fields) => (head = fields));
    stream.on("data", (data) => (text += data));
    stream.on("error", () => {}); // `rstCode` has the cause
    stream.on("close", () => {
      if (stream.rstCode === http2.constants.NGHTTP2_REFUSED_STREAM) return resolve();
      if (stream.rstCode !== 0 || head[":status"] !== 200 || text !== "hello\n")
        fail(`${head[":status"]}, reset with ${stream.rstCode}: ${text}`);
      totals.answered += 1;
      for (const wake of wakes) wake();
      resolve();
    });
  });
}

async function sendRequests(streams, reusesConnection) {
  let session = await connect();
  while (!stopped) {
    if (session.closed || session.destroyed) session = await connect();
    await Promise.all(Array.from({ length: streams }, () => ask(session)));
    if (!reusesConnection) session.close();
    await sleep(2); // leaves CPU time to the gateway
  }
  session.close();
}

/** Resolves after `more` further responses. */
function answered(more) {
  const enough = totals.answered + more;
  return new Promise((resolve) => wakes.push(() => totals.answered >= enough && resolve()));
}

const clients = [sendRequests(4, true), sendRequests(1, true), sendRequests(1, false), sendRequests(1, false)];
for await (const _ of readline.createInterface({ input: process.stdin })) {
  await answered(20);
  wakes.length = 0;
  console.log();
}
stopped = true;
await Promise.all(clients);
console.log(JSON.stringify(totals));
process.exit(0);
