// Checks of informational (1xx) responses with the clients of Node.js: `node node_informational.mjs URL VERSION [CA]`,
// where VERSION is 1 or 2.
import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { runAll } from "./node_checks.mjs";

const [url, version, ca] = process.argv.slice(2);
const tls = ca ? { ca: fs.readFileSync(ca), servername: "localhost" } : {};

/** An HTTP/1.1 client. `ask` returns a request with the events `informational`, `final` and `continue`. */
function http1Client() {
  const agent = new (ca ? https : http).Agent({ keepAlive: true, ...tls });
  const ask = (method, path, fields = {}) => {
    const request = (ca ? https : http).request(`${url}${path}`, { agent, method, headers: fields });
    request.on("information", ({ statusCode, headers }) => request.emit("informational", statusCode, headers));
    request.on("response", (response) => request.emit("final", response.statusCode, response));
    request.on("error", () => {}); // `once` also rejects on errors
    if (!fields.expect) request.end();
    return request;
  };
  return { ask, close: () => agent.destroy() };
}

/** An HTTP/2 client with the same interface. */
function http2Client() {
  const session = http2.connect(url, tls);
  const ask = (method, path, fields = {}) => {
    const request = session.request({ ":method": method, ":path": path, ...fields }, { endStream: !fields.expect });
    request.on("headers", (fields) => request.emit("informational", fields[":status"], fields));
    request.on("response", (fields) => request.emit("final", fields[":status"], request));
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

/** Returns the name of the first of these events. */
function first(request, ...names) {
  return Promise.race(names.map((name) => once(request, name).then(() => name)));
}

const checks = {
  "Node.js gets the 103 of the origin before the response": async ({ ask }) => {
    const request = ask("GET", "/hints");
    const [status, fields] = await once(request, "informational");
    assert.deepEqual([status, fields.link, fields["x-hint"]], [103, "</style.css>; rel=preload; as=style", "yes"]);
    const response = once(request, "final");
    const [, empty] = await once(ask("GET", "/more"), "final");
    await text(empty);
    const [code, body] = await response;
    assert.deepEqual([code, await text(body)], [200, "after the hint\n"]);
  },
  "Node.js sends its body after 100 Continue": async ({ ask }) => {
    const request = ask("POST", "/echo", { expect: "100-continue" });
    assert.equal(await first(request, "continue", "final"), "continue");
    request.end("the body");
    const [code, body] = await once(request, "final");
    assert.deepEqual([code, await text(body)], [200, "the body"]);
  },
  "Node.js gets a final response without 100 Continue": async ({ ask }) => {
    const request = ask("POST", "/unwanted", { expect: "100-continue" });
    let hasContinue = false;
    request.on("continue", () => (hasContinue = true));
    const [code, body] = await once(request, "final");
    assert.deepEqual([code, hasContinue], [417, false]);
    body.resume();
  },
};

const way = `, over HTTP/${version === "1" ? "1.1" : "2"}${ca ? " and TLS" : ""}`;
await runAll(checks, { open: version === "1" ? http1Client : http2Client, close: (client) => client.close(), way });
