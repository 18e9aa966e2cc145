// What every driver shares: where the gateway is, and a record of what went well, which the Go test reads.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';

export const base = process.env.GATEHOUSE_URL;
export const endpoint = `${base}/mcp`;

const done = [];
const facts = {};

/** Notes a figure or a name for the Go test. */
export function fact(name, value) {
  facts[name] = value;
}

/** Runs a step and notes it. One that fails ends the driver with its name. */
export async function step(name, f) {
  const began = performance.now();
  try {
    const result = await f();
    done.push({ name, ms: Math.round(performance.now() - began) });
    return result;
  } catch (err) {
    console.error(`step “${name}” failed:`, err);
    report(name);
    process.exit(1);
  }
}

/** Prints the record, as the last thing that a driver does. */
export function report(failed) {
  process.stdout.write(`${JSON.stringify({ steps: done, failed, facts })}\n`);
}

/** What a tool call answered, if it is not an error. */
export function content(result) {
  assert.notEqual(result.isError, true, JSON.stringify(result));
  assert.ok(result.structuredContent, JSON.stringify(result));
  return result.structuredContent;
}

/**
 * Listens on a free loopback port for the answers to authorization requests. Each request's state finds its answer.
 */
export async function callback() {
  const waiting = new Map();
  const server = createServer((req, res) => {
    const url = new URL(req.url, 'http://127.0.0.1');
    const found = waiting.get(url.searchParams.get('state'));
    waiting.delete(url.searchParams.get('state'));
    res.writeHead(found ? 200 : 404, { 'content-type': 'text/plain' }).end(found ? 'You can close this page.' : 'What?');
    found?.(url);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  server.unref();
  return {
    url: `http://127.0.0.1:${server.address().port}/callback`,
    wait: (state) => new Promise((resolve) => waiting.set(state, resolve)),
    close: () => server.close(),
  };
}

/** fetch that notes every exchange: what was sent where, and what came back. */
export function recorder() {
  const exchanges = [];
  const record = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input);
    const res = await fetch(input, init);
    exchanges.push({
      method: init?.method ?? 'GET',
      url,
      path: url.pathname,
      status: res.status,
      sent: init?.body?.toString() ?? '',
      challenge: res.headers.get('www-authenticate') ?? '',
    });
    return res;
  };
  return { exchanges, fetch: record, last: (path) => exchanges.findLast((e) => e.path === path) };
}
