// mcp-remote, as desktop applications run it: a process that speaks to the application over its standard streams, and
// opens the person's browser by itself. The application in front is played by the first SDK.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Desktop } from './desktop.mjs';
import { Person } from './person.mjs';
import { base, content, endpoint, report, step } from './steps.mjs';

const proxy = fileURLToPath(new URL('node_modules/mcp-remote/dist/proxy.js', import.meta.url));
const desktop = new Desktop();
const patience = { timeout: 180_000 };

async function start() {
  const transport = new StdioClientTransport({
    command: process.execPath,
    // left to itself it takes its port from the server's address, and that may be one that a connection has at the moment
    args: [proxy, endpoint, process.env.CALLBACK_PORT, '--transport', 'http-only', '--protocol', process.env.MCP_ERA ?? 'legacy', '--auth-timeout', '120'],
    env: { ...desktop.env(), MCP_REMOTE_CONFIG_DIR: desktop.home },
    stderr: 'pipe',
  });
  let log = '';
  transport.stderr.on('data', (d) => (log += d));
  const client = new Client({ name: 'desktop', version: '1.0.0' });
  try {
    await client.connect(transport, patience);
  } catch (err) {
    err.message += `\n${log}`;
    throw err;
  }
  const call = async (name, args, options = patience) => client.callTool({ name, arguments: args }, undefined, options);
  return { client, call, log: () => log };
}

const first = await step('it opens the browser, and connects what is in front of it', () => {
  desktop.decide(['contacts:read']);
  return start();
});

await step('its application sees and calls the tools', async () => {
  const { tools } = await first.client.listTools(undefined, patience);
  assert.deepEqual(tools.map((t) => t.name).sort(), ['contacts_get', 'contacts_search'], first.log());
  assert.equal(content(await first.call('contacts_search', { limit: 2 })).contacts.length, 2);
});

await first.client.close();

const second = await step('started again, it asks nobody, and its application calls as before', async () => {
  const again = await start();
  content(await again.call('contacts_search', { limit: 1 }));
  assert.equal(desktop.visits(), 1, again.log());
  return again;
});

await step('for a tool that it was not allowed it opens the browser again, and the call goes through', async () => {
  desktop.decide(['contacts:read', 'contacts:write']);
  const email = `${randomUUID()}@example.com`;
  content(await second.call('contacts_create', { first_name: 'Ada', email }));
  assert.equal(desktop.visits(), 2);
  assert.equal(content(await second.call('contacts_search', { query: email })).contacts.length, 1);
});

await step('disconnected in Settings, its next call is refused, and the owner asked', async () => {
  desktop.decide(undefined);
  const person = new Person();
  const { apps } = await person.connections(base);
  for (const name of new Set(apps.map((a) => a.name))) await person.disconnect(base, name);
  const outcome = await second.call('contacts_search', { limit: 1 }, { timeout: 20_000 }).catch((err) => err);
  assert.ok(outcome instanceof Error || outcome.isError, JSON.stringify(outcome));
  assert.equal((await person.connections(base)).apps.length, 0);
});

await second.client.close();
report();
