// Run a promptfoo evaluation through its Node package: `node promptfoo.mjs ENTRY JOB`.
// In process the provider is a function; over HTTP it is `openai:chat`. Results go to promptfoo's
// own database. Every tenth sample expects "no", as in harness.py.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const job = JSON.parse(process.argv[3]);
const { default: promptfoo } = await import(pathToFileURL(process.argv[2]).href);

const answer = async () => ({ output: "yes" });
const chat = {
  id: "openai:chat:m",
  config: { apiBaseUrl: job.url, apiKey: "none" },
};
const tests = Array.from({ length: job.count }, (_, index) => ({
  vars: { question: `question ${index}` },
  assert: [{ type: "equals", value: index % 10 === 0 ? "no" : "yes" }],
}));

const [start, cpu] = [performance.now(), process.cpuUsage()];
const done = await promptfoo.evaluate(
  {
    prompts: ["{{question}}"],
    providers: [job.url ? chat : answer],
    tests,
    writeLatestResults: true,
  },
  { maxConcurrency: job.concurrency, cache: false, showProgressBar: false },
);
const summary = await done.toEvaluateSummary();
const seconds = (performance.now() - start) / 1000;
const { user, system } = process.cpuUsage(cpu);

const peak = () => {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 1024;
  } catch {
    return process.resourceUsage().maxRSS / 1024;
  }
};
const { successes, errors } = summary.stats;
const cpu_seconds = (user + system) / 1e6;
const figures = { seconds, cpu_seconds, peak_mb: peak(), passed: successes, errors };
writeFileSync(`${job.folder}/node.json`, JSON.stringify(figures));
process.exit(0);
