// What checks by node have in common.

/** Runs them, each with what `open` gives, and prints a line of JSON for each. */
export async function runAll(checks, { open, close, way }) {
  for (const [sentence, check] of Object.entries(checks)) {
    const late = new Promise((_, reject) => setTimeout(reject, 10_000, new Error("not done after 10 s")).unref());
    const opened = await open();
    const told = (error) => String(error.stack ?? error);
    const error = await Promise.race([check(opened), late]).then(() => undefined, told);
    close(opened);
    console.log(JSON.stringify({ sentence: sentence + way, error }));
  }
  process.exit(0);
}

/** Resolves when it holds; the run has a bound of its own. */
export async function until(condition) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}
