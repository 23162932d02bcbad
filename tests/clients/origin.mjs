// A server of node behind the gateway: `node origin.mjs SOCKET`. Prints its port, and listens on a Unix socket as well.
import http from "node:http";

let left = 0; // requests whose client was gone before their answer was complete

const pages = {
  plain: (_, response) => response.end("hello\n"),
  request: (request, response) => {
    const { method, url, httpVersion, headers } = request;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ method, url, httpVersion, headers }));
  },
  echo: (request, response) => request.pipe(response),
  // How much came, and what came behind it.
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
  // So many bytes.
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
  // Events, each when the one before it has been seen: the client asks for the next by /more.
  events: (_, response) => {
    response.setHeader("content-type", "text/event-stream");
    response.write("data: first\n\n");
    waiting.push(() => response.end("data: last\n\n"));
  },
  more: (_, response) => {
    waiting.splice(0).forEach((wake) => wake());
    response.end();
  },
  // Says what will be needed, and answers when the client has heard of it and asks by /more.
  hints: (_, response) => {
    response.writeEarlyHints({ link: "</style.css>; rel=preload; as=style", "x-hint": "yes" });
    waiting.push(() => response.end("after the hint\n"));
  },
  // Does not want what the client would send.
  unwanted: (_, response) => {
    response.statusCode = 417;
    response.end();
  },
  // Says a part of its answer, and breaks it off.
  broken: (_, response) => {
    response.writeHead(200, { "content-length": 100 });
    response.write("a part of it", () => response.destroy());
  },
  hang: () => {},
  left: (_, response) => response.end(String(left)),
  status: (_, response, status) => {
    response.statusCode = Number(status);
    response.end();
  },
};
const waiting = [];
// Of routes: what follows them is the page.
const prefixes = ["limited", "unix", "by-address", "by-subject", "by-san"];

function answer(request, response) {
  const [, first, second, third] = request.url.split("?")[0].split("/");
  const [page, argument] = prefixes.includes(first) ? [second, third] : [first, second];
  response.on("close", () => (left += response.writableFinished ? 0 : 1));
  (pages[page] ?? pages.plain)(request, response, argument);
}

/** A client waits with its body: node would ask for it at once, whatever the page. */
function judge(request, response) {
  if (!request.url.startsWith("/unwanted")) response.writeContinue();
  answer(request, response);
}

const [server, local] = [http.createServer(answer), http.createServer(answer)];
server.on("checkContinue", judge);
server.keepAliveTimeout = local.keepAliveTimeout = 60_000;
local.listen(process.argv[2], () => server.listen(0, "127.0.0.1", () => console.log(server.address().port)));
