// A Node.js server behind the gateway: `node origin.mjs SOCKET`. Prints its port, and also listens on a Unix socket.
import http from "node:http";

let aborted = 0; // requests whose connection closed before the response was complete

const pages = {
  plain: (_, response) => response.end("hello\n"),
  request: (request, response) => {
    const { method, url, httpVersion, headers } = request;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ method, url, httpVersion, headers }));
  },
  echo: (request, response) => request.pipe(response),
  // The size of the body, and the trailers.
  count: (request, response) => {
    let bytes = 0;
    request.on("data", (data) => (bytes += data.length));
    request.on("end", () => response.end(JSON.stringify({ bytes, trailers: request.trailers })));
  },
  trailers: (_, response) => {
    response.setHeader("trailer", "x-checksum");
    response.write("with trailers\n");
    response.addTrailers({ "x-checksum": "abc" });
    response.end();
  },
  // `count` bytes.
  bytes: (_, response, count) => {
    const piece = Buffer.alloc(16 * 1024, "x");
    let rest = Number(count);
    const more = () => {
      while (rest > 0) {
        const next = piece.subarray(0, Math.min(rest, piece.length));
        rest -= next.length;
        if (!response.write(next)) return response.once("drain", more);
      }
      response.end();
    };
    more();
  },
  // Server-sent events. The client requests /more to get the second one.
  events: (_, response) => {
    response.setHeader("content-type", "text/event-stream");
    response.write("data: first\n\n");
    waiting.push(() => response.end("data: last\n\n"));
  },
  more: (_, response) => {
    waiting.splice(0).forEach((wake) => wake());
    response.end();
  },
  // Sends 103 Early Hints. Responds after the client has requested /more.
  hints: (_, response) => {
    response.writeEarlyHints({ link: "</style.css>; rel=preload; as=style", "x-hint": "yes" });
    waiting.push(() => response.end("after the hint\n"));
  },
  // Responds without reading the body.
  unwanted: (_, response) => {
    response.statusCode = 417;
    response.end();
  },
  // Truncates its response.
  broken: (_, response) => {
    response.writeHead(200, { "content-length": 100 });
    response.write("a part of it", () => response.destroy());
  },
  hang: () => {},
  aborted: (_, response) => response.end(String(aborted)),
  status: (_, response, status) => {
    response.statusCode = Number(status);
    response.end();
  },
};
const waiting = [];
// Prefixes of routes; the page follows.
const prefixes = ["limited", "unix", "by-address", "by-subject", "by-san"];

function respond(request, response) {
  const [, first, second, third] = request.url.split("?")[0].split("/");
  const [page, argument] = prefixes.includes(first) ? [second, third] : [first, second];
  response.on("close", () => (aborted += response.writableFinished ? 0 : 1));
  (pages[page] ?? pages.plain)(request, response, argument);
}

/** Sends 100 Continue except for /unwanted. Without this handler, Node.js sends it for every page. */
function checkContinue(request, response) {
  if (!request.url.startsWith("/unwanted")) response.writeContinue();
  respond(request, response);
}

const [server, local] = [http.createServer(respond), http.createServer(respond)];
server.on("checkContinue", checkContinue);
server.keepAliveTimeout = local.keepAliveTimeout = 60_000;
local.listen(process.argv[2], () => server.listen(0, "127.0.0.1", () => console.log(server.address().port)));
