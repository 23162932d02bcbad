// Checks with the HTTP/2 client of Node.js: `node node_http2.mjs URL NAME [CA]`. Prints a line of JSON for each.
import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import http2 from "node:http2";
import { runAll, until } from "./node_checks.mjs";

const [url, name, ca] = process.argv.slice(2);

async function connect() {
  const session = http2.connect(url, ca ? { ca: fs.readFileSync(ca), servername: "localhost" } : {});
  session.on("error", () => {});
  await new Promise((resolve) => session.once("remoteSettings", resolve).once("close", resolve));
  return session;
}

/** Sends a request. Returns the head, text and trailers of the response. */
function ask(session, fields, body, trailers) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":path": "/plain", ...fields }, { waitForTrailers: Boolean(trailers), endStream: body === undefined && !trailers });
    const response = { text: "", trailers: {} };
    if (trailers) stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    stream.setEncoding("utf8");
    stream.on("response", (head) => (response.head = head));
    stream.on("trailers", (fields) => (response.trailers = { ...fields }));
    stream.on("data", (data) => (response.text += data));
    stream.on("error", reject);
    stream.on("close", () => (stream.rstCode ? reject(new Error(`reset with ${stream.rstCode}`)) : resolve(response)));
    if (body !== undefined || trailers) stream.end(body);
  });
}

const checks = {
  "Node.js gets a response over HTTP/2": async (session) => {
    const { head, text } = await ask(session, {});
    assert.deepEqual([head[":status"], text], [200, "hello\n"]);
  },
  "a request of Node.js arrives unchanged": async (session) => {
    const { text } = await ask(session, { ":method": "PUT", ":path": "/request?a=b", "x-one": "1", cookie: ["a=1", "b=2"] }, "body");
    const { method, url, headers } = JSON.parse(text);
    assert.deepEqual([method, url, headers["x-one"], headers.cookie], ["PUT", "/request?a=b", "1", "a=1; b=2"]);
  },
  "4 MiB are echoed to Node.js": async (session) => {
    const body = "0123456789abcdef".repeat(256 * 1024);
    const { text } = await ask(session, { ":method": "POST", ":path": "/echo" }, body);
    assert.ok(text === body);
  },
  "trailers of Node.js reach the origin": async (session) => {
    const fields = { ":method": "POST", ":path": "/count", trailer: "x-checksum" };
    const { text } = await ask(session, fields, "body", { "x-checksum": "abc" });
    assert.deepEqual(JSON.parse(text), { bytes: 4, trailers: { "x-checksum": "abc" } });
  },
  "trailers of the origin reach Node.js": async (session) => {
    const { text, trailers } = await ask(session, { ":path": "/trailers", te: "trailers" });
    assert.deepEqual([text, trailers["x-checksum"]], ["with trailers\n", "abc"]);
  },
  "Node.js gets 429 with the rate limit fields": async (session) => {
    const again = () => ask(session, { ":path": "/limited/plain", "x-name": name });
    const responses = [await again(), await again(), await again()];
    assert.deepEqual(responses.map(({ head }) => head[":status"]), [200, 200, 429]);
    const { head, text } = responses[2];
    assert.ok(head["retry-after"] && head.ratelimit && head["ratelimit-policy"]);
    assert.deepEqual(JSON.parse(text)["violated-policies"], ["per-name"]);
  },
  "a reset stream of Node.js aborts only its own request at the origin": async (session) => {
    const aborted = async () => Number((await ask(session, { ":path": "/aborted" })).text);
    const before = await aborted();
    const stream = session.request({ ":path": "/hang" });
    stream.on("error", () => {});
    await ask(session, {}); // the request has reached the origin before the reset
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await until(async () => (await aborted()) > before);
  },
  "a truncated response resets the stream, and the next request succeeds": async (session) => {
    await assert.rejects(ask(session, { ":path": "/broken" }));
    assert.equal((await ask(session, {})).text, "hello\n");
  },
  "an unread stream does not block 99 others": async (session) => {
    const unread = session.request({ ":path": "/bytes/1000000" });
    unread.pause();
    const responses = await Promise.all(Array.from({ length: 99 }, () => ask(session, { ":path": "/bytes/100000" })));
    assert.ok(responses.every(({ text }) => text.length === 100_000));
    let read = 0;
    unread.on("data", (data) => (read += data.length));
    unread.resume();
    await new Promise((resolve) => unread.on("end", resolve));
    assert.equal(read, 1_000_000);
  },
  "an extended CONNECT of Node.js opens a WebSocket": async (session) => {
    assert.equal(session.remoteSettings.enableConnectProtocol, true);
    const fields = { ":method": "CONNECT", ":protocol": "websocket", ":path": "/socket", "sec-websocket-version": "13" };
    const stream = session.request(fields, { endStream: false });
    const [head] = await once(stream, "response");
    assert.equal(head[":status"], 200);
    stream.write(Buffer.from([0x81, 0x85, 0, 0, 0, 0, ...Buffer.from("hello")])); // a text, masked with zeros
    assert.deepEqual((await once(stream, "data"))[0], Buffer.from([0x81, 5, ...Buffer.from("hello")]));
    stream.end(Buffer.from([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8])); // a close, with 1000
    const closed = once(stream, "close");
    assert.deepEqual((await once(stream, "data"))[0], Buffer.from([0x88, 2, 0x03, 0xe8]));
    await closed;
    assert.equal(stream.rstCode, 0);
  },
  "an extended CONNECT of Node.js gets 501 for another protocol, and 429 over the limit": async (session) => {
    const tunnel = (fields) => ask(session, { ":method": "CONNECT", "sec-websocket-version": "13", ...fields }, "");
    assert.equal((await tunnel({ ":protocol": "other", ":path": "/socket" })).head[":status"], 501);
    const limited = { ":protocol": "websocket", ":path": "/limited/socket", "x-name": `${name}-tunnel` };
    const responses = [await tunnel(limited), await tunnel(limited), await tunnel(limited)];
    assert.deepEqual(responses.map(({ head }) => head[":status"]), [200, 200, 429]);
  },
  "a PING of Node.js is answered": (session) =>
    new Promise((resolve, reject) => session.ping((error) => (error ? reject(error) : resolve()))),
  "settings of Node.js are acknowledged": (session) =>
    new Promise((resolve, reject) =>
      session.settings({ initialWindowSize: 100_000, enablePush: false }, (error) => (error ? reject(error) : resolve())),
    ),
};

await runAll(checks, { open: connect, close: (session) => session.destroy(), way: ca ? ", over TLS" : "" });
