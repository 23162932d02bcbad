// Runs a command with a permit, and gives the permit back if the command fails: take.mjs URL LIMIT CLIENT COMMAND...
import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { env, exit, argv } from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

const [url, limit, client, command, ...parameters] = argv.slice(2);
const headers = { "Content-Type": "application/json", Authorization: `Bearer ${env.TIDEGATE_TOKEN ?? ""}` };

// Returns the response. Repeats a request without a response: its id is charged once.
async function post(path, body) {
  for (let left = 5; ; left--) {
    try {
      return await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
    } catch (error) {
      if (left === 1) throw error;
      await sleep(1000);
    }
  }
}

const take = { limits: [{ limit, client }], max_wait: "1s", id: randomUUID() };
for (let response; (response = await post("/v1/take", take)).status !== 200; ) {
  const seconds = response.headers.get("Retry-After");
  if (response.status !== 429 || !seconds) throw new Error(await response.text());
  await sleep(1000 * seconds);
}
const { status } = spawnSync(command, parameters, { stdio: "inherit" });
if (status !== 0) await post("/v1/return", { id: take.id });
exit(status ?? 1);
