// The inspector's command line, as somebody checks a server with it: it opens the browser, listens for the answer, and
// keeps its tokens for the next call.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Desktop } from './desktop.mjs';
import { Person } from './person.mjs';
import { base, endpoint, fact, report, step } from './steps.mjs';

const launcher = fileURLToPath(
  new URL('node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js', import.meta.url));
const desktop = new Desktop();
const person = new Person();

// run runs the command line to its end.
async function run(args, { era = 'auto' } = {}) {
  const argv = ['--cli', '--server-url', endpoint, '--transport', 'http', '--protocol-era', era, '--format', 'json'];
  argv.push('--connect-timeout', '60000');
  argv.push('--callback-url', `http://127.0.0.1:${process.env.CALLBACK_PORT}/oauth/callback`, ...args);
  const child = spawn(process.execPath, [launcher, ...argv], {
    env: { ...desktop.env(), MCP_AUTO_OPEN_ENABLED: 'true', MCP_INSPECTOR_SECRET_STORE: 'file' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), 180_000);
  let out = '';
  let err = '';
  child.stdout.on('data', (d) => (out += d));
  child.stderr.on('data', (d) => (err += d));
  const code = await new Promise((resolve) => child.on('close', resolve));
  clearTimeout(timer);
  return { code, out, err };
}

function ok(result) {
  assert.equal(result.code, 0, JSON.stringify(result));
  return JSON.parse(result.out);
}

for (const era of ['legacy', 'modern']) {
  await step(`${era}: signing in, and the tools' schemas have no flaw (strict)`, async () => {
    desktop.decide('*');
    const before = desktop.visits();
    const result = await run(['--method', 'tools/list', '--strict', '--relogin'], { era });
    const { result: list, schemaFindings = [] } = ok(result);
    assert.equal(desktop.visits(), before + 1, result.err);
    assert.ok(list.tools.length > 30 && list.tools.length < 40, `${list.tools.length} tools`);
    const errors = schemaFindings.filter((t) => t.findings.some((f) => f.severity === 'error'));
    assert.deepEqual(errors, []);
    fact(`${era}: warnings`, schemaFindings.flatMap((t) => t.findings.map((f) => `${t.toolName}: ${f.rule} at ${f.path}`)).join('\n'));
  });

  await step(`${era}: a tool is called, and nobody asked again`, async () => {
    desktop.decide(undefined);
    const before = desktop.visits();
    const result = await run(['--method', 'tools/call', '--tool-name', 'business_get', '--stored-auth-only'], { era });
    const answer = ok(result);
    assert.ok((answer.result ?? answer).structuredContent, result.out);
    assert.equal(desktop.visits(), before);
  });
}

await step('a wrong argument is explained', async () => {
  const args = ['--method', 'tools/call', '--tool-name', 'contacts_search', '--tool-args-json', '{"limit":101}'];
  const result = await run([...args, '--stored-auth-only']);
  assert.notEqual(result.code, 0, result.out);
  assert.match(result.out + result.err, /limit/);
});

await step('disconnected in Settings, the next call is refused', async () => {
  const { apps } = await person.connections(base);
  for (const name of new Set(apps.map((a) => a.name))) await person.disconnect(base, name);
  const result = await run(['--method', 'tools/list', '--stored-auth-only']);
  assert.notEqual(result.code, 0, result.out);
});

report();
