// Shared code of the Node.js checks.

/** Runs the checks, each with a client from `open`, and prints a line of JSON for each. */
export async function runAll(checks, { open, close, way }) {
  for (const [sentence, check] of Object.entries(checks)) {
    const timeout = new Promise((_, reject) =>
      setTimeout(reject, 10_000, new Error("not finished after 10 s")).unref(),
    );
    const client = await open();
    const text = (error) => String(error.stack ?? error);
    const error = await Promise.race([check(client), timeout]).then(() => undefined, text);
    close(client);
    console.log(JSON.stringify({ sentence: sentence + way, error }));
  }
  process.exit(0);
}

/** Resolves when the condition holds. The check's timeout ends the wait. */
export async function until(condition) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}
