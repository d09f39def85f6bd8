// What the worker can do. A function gets the payload and the job; what it returns is the result.
import { setTimeout as sleep } from "node:timers/promises";

export default {
  "thumbnail:make": async ({ photo, width }, job) => {
    await sleep(50, null, { signal: job.signal }); // give the signal to all that takes long
    return { file: `${photo}-${width}.png` };
  },
  "greeting:send": ({ to }) => {
    if (!to) throw Object.assign(new Error("to whom?"), { code: "no_address" });
    return `hello ${to}`;
  },
};
