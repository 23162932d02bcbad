// Checks by node's clients of what comes before an answer: `node node_informed.mjs URL VERSION [CA]`, with 1 or 2 for the
// version of HTTP.
import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { runAll } from "./node_checking.mjs";

const [url, version, ca] = process.argv.slice(2);
const tls = ca ? { ca: fs.readFileSync(ca), servername: "localhost" } : {};

/** A client of HTTP/1.1; `ask` gives a request whose events are named as below. */
function http1Client() {
  const agent = new (ca ? https : http).Agent({ keepAlive: true, ...tls });
  const ask = (method, path, fields = {}) => {
    const request = (ca ? https : http).request(`${url}${path}`, { agent, method, headers: fields });
    request.on("information", ({ statusCode, headers }) => request.emit("informed", statusCode, headers));
    request.on("response", (response) => request.emit("answer", response.statusCode, response));
    request.on("error", () => {}); // who waits for an event hears of it
    if (!fields.expect) request.end();
    return request;
  };
  return { ask, close: () => agent.destroy() };
}

/** The same of HTTP/2. */
function http2Client() {
  const session = http2.connect(url, tls);
  const ask = (method, path, fields = {}) => {
    const request = session.request({ ":method": method, ":path": path, ...fields }, { endStream: !fields.expect });
    request.on("headers", (fields) => request.emit("informed", fields[":status"], fields));
    request.on("response", (fields) => request.emit("answer", fields[":status"], request));
    request.on("error", () => {});
    return request;
  };
  return { ask, close: () => session.destroy() };
}

async function text(body) {
  let whole = "";
  for await (const piece of body.setEncoding("utf8")) whole += piece;
  return whole;
}

/** What came first of these events. */
function first(request, ...names) {
  return Promise.race(names.map((name) => once(request, name).then(() => name)));
}

const checks = {
  "node hears the origin's 103 before there is an answer": async ({ ask }) => {
    const request = ask("GET", "/hints");
    const [status, fields] = await once(request, "informed");
    assert.deepEqual([status, fields.link, fields["x-hint"]], [103, "</style.css>; rel=preload; as=style", "yes"]);
    const answer = once(request, "answer");
    const [, nothing] = await once(ask("GET", "/more"), "answer");
    await text(nothing);
    const [code, body] = await answer;
    assert.deepEqual([code, await text(body)], [200, "after the hint\n"]);
  },
  "node that waits with its body is asked for it, and it arrives": async ({ ask }) => {
    const request = ask("POST", "/echo", { expect: "100-continue" });
    assert.equal(await first(request, "continue", "answer"), "continue");
    request.end("the body");
    const [code, body] = await once(request, "answer");
    assert.deepEqual([code, await text(body)], [200, "the body"]);
  },
  "node that waits with a body that the origin does not want is told so, and not asked for it": async ({ ask }) => {
    const request = ask("POST", "/unwanted", { expect: "100-continue" });
    let isAsked = false;
    request.on("continue", () => (isAsked = true));
    const [code, body] = await once(request, "answer");
    assert.deepEqual([code, isAsked], [417, false]);
    body.resume();
  },
};

const way = `, over HTTP/${version === "1" ? "1.1" : "2"}${ca ? " and TLS" : ""}`;
await runAll(checks, { open: version === "1" ? http1Client : http2Client, close: (client) => client.close(), way });
