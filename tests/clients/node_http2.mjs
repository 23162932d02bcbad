// Checks by node's client of HTTP/2: `node node_http2.mjs URL NAME [CA]`. Prints a line of JSON for each.
import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import http2 from "node:http2";
import { runAll, until } from "./node_checking.mjs";

const [url, name, ca] = process.argv.slice(2);

async function connect() {
  const session = http2.connect(url, ca ? { ca: fs.readFileSync(ca), servername: "localhost" } : {});
  session.on("error", () => {});
  await new Promise((resolve) => session.once("remoteSettings", resolve).once("close", resolve));
  return session;
}

/** What comes back for a request. */
function ask(session, fields, body, trailers) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":path": "/plain", ...fields }, { waitForTrailers: Boolean(trailers), endStream: body === undefined && !trailers });
    const answer = { text: "", trailers: {} };
    if (trailers) stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    stream.setEncoding("utf8");
    stream.on("response", (head) => (answer.head = head));
    stream.on("trailers", (fields) => (answer.trailers = { ...fields }));
    stream.on("data", (data) => (answer.text += data));
    stream.on("error", reject);
    stream.on("close", () => (stream.rstCode ? reject(new Error(`reset with ${stream.rstCode}`)) : resolve(answer)));
    if (body !== undefined || trailers) stream.end(body);
  });
}

const checks = {
  "node is answered over HTTP/2": async (session) => {
    const { head, text } = await ask(session, {});
    assert.deepEqual([head[":status"], text], [200, "hello\n"]);
  },
  "node's request arrives as what it is": async (session) => {
    const { text } = await ask(session, { ":method": "PUT", ":path": "/request?a=b", "x-one": "1", cookie: ["a=1", "b=2"] }, "body");
    const { method, url, headers } = JSON.parse(text);
    assert.deepEqual([method, url, headers["x-one"], headers.cookie], ["PUT", "/request?a=b", "1", "a=1; b=2"]);
  },
  "node has 4 MiB echoed": async (session) => {
    const body = "0123456789abcdef".repeat(256 * 1024);
    const { text } = await ask(session, { ":method": "POST", ":path": "/echo" }, body);
    assert.ok(text === body);
  },
  "node's trailers reach the origin": async (session) => {
    const fields = { ":method": "POST", ":path": "/count", trailer: "x-checksum" };
    const { text } = await ask(session, fields, "body", { "x-checksum": "abc" });
    assert.deepEqual(JSON.parse(text), { bytes: 4, trailers: { "x-checksum": "abc" } });
  },
  "the origin's trailers reach node": async (session) => {
    const { text, trailers } = await ask(session, { ":path": "/trailers", te: "trailers" });
    assert.deepEqual([text, trailers["x-checksum"]], ["with trailers\n", "abc"]);
  },
  "node is refused with 429 and its fields": async (session) => {
    const again = () => ask(session, { ":path": "/limited/plain", "x-name": name });
    const answers = [await again(), await again(), await again()];
    assert.deepEqual(answers.map(({ head }) => head[":status"]), [200, 200, 429]);
    const { head, text } = answers[2];
    assert.ok(head["retry-after"] && head.ratelimit && head["ratelimit-policy"]);
    assert.deepEqual(JSON.parse(text)["violated-policies"], ["per-name"]);
  },
  "node's reset of a stream ends its request at the origin, and nothing else": async (session) => {
    const left = async () => Number((await ask(session, { ":path": "/left" })).text);
    const before = await left();
    const stream = session.request({ ":path": "/hang" });
    stream.on("error", () => {});
    await ask(session, {}); // the origin is asked before the stream is reset
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await until(async () => (await left()) > before);
  },
  "an answer that its origin breaks off is a reset stream, and the next is answered": async (session) => {
    await assert.rejects(ask(session, { ":path": "/broken" }));
    assert.equal((await ask(session, {})).text, "hello\n");
  },
  "100 streams of which one is not read do not hold each other up": async (session) => {
    const unread = session.request({ ":path": "/bytes/1000000" });
    unread.pause();
    const answers = await Promise.all(Array.from({ length: 99 }, () => ask(session, { ":path": "/bytes/100000" })));
    assert.ok(answers.every(({ text }) => text.length === 100_000));
    let read = 0;
    unread.on("data", (data) => (read += data.length));
    unread.resume();
    await new Promise((resolve) => unread.on("end", resolve));
    assert.equal(read, 1_000_000);
  },
  "node's extended CONNECT is a WebSocket": async (session) => {
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
  "node's extended CONNECT to another protocol is refused with 501, and one beyond a limit with 429": async (session) => {
    const tunnel = (fields) => ask(session, { ":method": "CONNECT", "sec-websocket-version": "13", ...fields }, "");
    assert.equal((await tunnel({ ":protocol": "other", ":path": "/socket" })).head[":status"], 501);
    const limited = { ":protocol": "websocket", ":path": "/limited/socket", "x-name": `${name}-tunnel` };
    const answers = [await tunnel(limited), await tunnel(limited), await tunnel(limited)];
    assert.deepEqual(answers.map(({ head }) => head[":status"]), [200, 200, 429]);
  },
  "node's PING is answered": (session) =>
    new Promise((resolve, reject) => session.ping((error) => (error ? reject(error) : resolve()))),
  "node's settings are acknowledged": (session) =>
    new Promise((resolve, reject) =>
      session.settings({ initialWindowSize: 100_000, enablePush: false }, (error) => (error ? reject(error) : resolve())),
    ),
};

await runAll(checks, { open: connect, close: (session) => session.destroy(), way: ca ? ", over TLS" : "" });
