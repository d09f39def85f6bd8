// A worker that needs nothing but HTTP: Node 18 or newer, and no package.
//
//   PENSTOCK_HTTP=http://127.0.0.1:8787 PENSTOCK_TOKEN=pst_… node worker.mjs functions.mjs
//
// functions.mjs exports one function per type of job, as { "email:send": async (payload, job) => result }.
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const url = process.env.PENSTOCK_HTTP ?? "http://127.0.0.1:8787";
const concurrency = Number(process.env.CONCURRENCY ?? 4);
const leaseSeconds = Number(process.env.LEASE_SECONDS ?? 30); // without a heartbeat; then others get the job
const heartbeatSeconds = Number(process.env.HEARTBEAT_SECONDS ?? 5);
const worker = `${hostname()}/${process.pid}`;

const { default: functions } = await import(pathToFileURL(resolve(process.argv[2])));
const types = Object.keys(functions);
const held = new Map(); // by the token of its claim: { job, told } of every job in work
let wanted = "run"; // or quiet: claim nothing new; or stop
let poll = new AbortController(); // ends the claims that wait
const claims = new Set(); // that are under way

class Problem extends Error {} // an answer of the service that is not a success, with its stable `code`

// Repeats a request until it is answered. That is harmless: claims have a key, and what follows has the claim's token.
async function call(path, body, { key, signal } = {}) {
  const headers = { "content-type": "application/json", authorization: `Bearer ${process.env.PENSTOCK_TOKEN ?? ""}` };
  if (key) headers["idempotency-key"] = key;
  for (let pause = 0.1; ; pause = Math.min(2 * pause, 5)) {
    let answer, text;
    try {
      answer = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body), signal });
      text = await answer.text();
    } catch (error) {
      if (signal?.aborted) throw error;
      await sleep(1000 * pause); // nobody there, or the connection broke
      continue;
    }
    if (answer.status === 429 || answer.status === 503) {
      await sleep(1000 * Number(answer.headers.get("retry-after") ?? pause));
      continue;
    }
    const document = text ? JSON.parse(text) : null;
    if (!answer.ok) throw Object.assign(new Problem(document.message), { code: document.code });
    return document;
  }
}

// Waits for a job. When the poll is ended, the service may just have claimed one: the same key asks for it.
async function claim() {
  const key = randomUUID();
  const asked = { worker, types, lease_seconds: leaseSeconds };
  try {
    return await call("/v1/jobs/claim", { ...asked, wait: 20 }, { key, signal: poll.signal });
  } catch (error) {
    if (!poll.signal.aborted) throw error;
    return await call("/v1/jobs/claim", asked, { key });
  }
}

async function run(job) {
  const told = new AbortController(); // aborted when the job is cancelled, or is not ours any more
  held.set(job.token, { job, told });
  const mine = { worker, token: job.token };
  try {
    const result = await functions[job.type](job.payload, { ...job, signal: told.signal });
    await call(`/v1/jobs/${job.id}/complete`, { ...mine, result: result ?? null });
    console.log("done", job.id);
  } catch (error) {
    await report(job, mine, error, told.signal.reason);
  } finally {
    held.delete(job.token);
  }
}

// A job that was lost belongs to somebody else; what was cancelled is not tried again.
async function report(job, mine, error, reason) {
  if (error?.code === "lease_lost" || reason === "lost") return console.log("lost", job.id);
  const cancelled = reason === "cancelled";
  const code = cancelled ? reason : typeof error?.code === "string" ? error.code : (error?.name ?? null);
  const failed = { message: String(error?.message ?? error), code };
  try {
    await call(`/v1/jobs/${job.id}/fail`, { ...mine, error: failed, permanent: cancelled });
    console.log(reason ?? "failed", job.id);
  } catch (late) {
    if (late.code !== "lease_lost") throw late;
    console.log("lost", job.id);
  }
}

async function heartbeat(run) {
  const tokens = [...held.keys()];
  const beat = await call("/v1/heartbeats", { leases: tokens.map((token) => ({ token })), seconds: leaseSeconds, run });
  beat.leases.forEach(({ outcome }, place) => {
    if (outcome === "lost" || outcome === "cancel")
      held.get(tokens[place])?.told.abort(outcome === "lost" ? "lost" : "cancelled");
  });
  if (wanted !== "stop") obey(beat.wanted);
}

function obey(order) {
  if (order === wanted) return;
  wanted = order;
  if (order === "run") poll = new AbortController();
  else poll.abort();
  Promise.allSettled(claims).then(() => console.log("told", order)); // nothing is claimed from here on, unless told to run
}

async function place() {
  while (wanted !== "stop") {
    if (wanted === "quiet") {
      await sleep(100);
      continue;
    }
    const asked = claim();
    claims.add(asked);
    const job = await asked.finally(() => claims.delete(asked));
    if (job) await run(job);
  }
}

const { id } = await call("/v1/runs", { name: worker, host: hostname(), pid: process.pid, groups: types });
process.once("SIGTERM", () => obey("stop")); // a second signal ends the process at once
process.once("SIGINT", () => obey("stop"));
console.log("ready", id);
const places = Promise.all(Array.from({ length: concurrency }, place)).then(() => "ended");
// Heartbeats go on until the last job has ended.
while ((await Promise.race([places, sleep(1000 * heartbeatSeconds)])) !== "ended") await heartbeat(id);
await call(`/v1/runs/${id}/end`, { outcome: "stopped" });
process.exit(0);
