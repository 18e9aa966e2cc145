// A browser, for real: Chromium, with scripts on or off (JAVASCRIPT=off). The assistant is the second SDK.
//
// LOOK=on has every page on the way held to what holds for all of them; SCREENSHOTS names a folder for pictures of each.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { chromium } from 'playwright-core';
import { Provider } from './provider.mjs';
import { base, callback, content, endpoint, fact, report, step } from './steps.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const scripts = process.env.JAVASCRIPT !== 'off';
const pictures = process.env.SCREENSHOTS;
const { GATEHOUSE_EMAIL: email, GATEHOUSE_PASSWORD: password } = process.env;
const phone = { width: 360, height: 740 };
const desk = { width: 1280, height: 900 };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
  timeout: 180_000,
});
const context = await browser.newContext({ javaScriptEnabled: scripts, viewport: desk });
context.setDefaultTimeout(60_000);
const page = await context.newPage();

// What a page must not do: write to the console, or load anything that fails.
const complaints = [];
page.on('console', (m) => ['error', 'warning'].includes(m.type()) && complaints.push(`${page.url()}: ${m.text()}`));
page.on('pageerror', (err) => complaints.push(`${page.url()}: ${err}`));
// ERR_ABORTED is the browser's own: what a page had still to load when the browser left it. What our side or a policy
// breaks has other names (ERR_CONNECTION_RESET, ERR_EMPTY_RESPONSE, csp, ...).
page.on('requestfailed', (r) => {
  if (r.failure().errorText !== 'net::ERR_ABORTED') complaints.push(`${r.url()}: ${r.failure().errorText}`);
});
page.on('request', (r) => new URL(r.url()).origin !== base && !r.isNavigationRequest() && complaints.push(`foreign: ${r.url()}`));

// look holds the page that is open to what holds for every page: nothing that keeps people out, in light and dark, on a
// phone's width too, where nothing runs over the edge.
async function look(name) {
  if (process.env.LOOK !== 'on') return;
  await page.waitForLoadState(); // its style sheet, too
  for (const { size, viewport, colorScheme, checked } of [
    { size: 'phone', viewport: phone, colorScheme: 'light', checked: true },
    { size: 'phone', viewport: phone, colorScheme: 'dark' },
    { size: 'desk', viewport: desk, colorScheme: 'light' },
    { size: 'desk', viewport: desk, colorScheme: 'dark', checked: true },
  ]) {
    if (!checked && !pictures) continue;
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' }); // no picture of a colour on its way to another
    await page.setViewportSize(viewport);
    if (pictures) await page.screenshot({ path: `${pictures}/${name}-${size}-${colorScheme}.png`, fullPage: true });
    if (!checked) continue;
    const { wide, violations } = await check();
    assert.ok(wide <= viewport.width, `${name} is ${wide} wide on a ${size}`);
    const found = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
    assert.deepEqual(found, [], `${name}, ${size}, ${colorScheme}`);
    for (const v of violations) fact(`less than serious: ${name}, ${size}: ${v.id} (${v.impact})`, v.nodes.join('\n'));
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(desk);
}

// check asks axe-core. A page's policy lets no script in, and a browser without scripts runs none: so the check is put in
// by the browser's own debugger, in a world beside the page's.
async function check() {
  const session = await context.newCDPSession(page);
  try {
    const { frameTree } = await session.send('Page.getFrameTree');
    const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id, worldName: 'check' });
    const run = async (expression) => {
      const answer = await session.send('Runtime.evaluate', {
        contextId: executionContextId, expression, awaitPromise: true, returnByValue: true,
      });
      assert.ok(!answer.exceptionDetails, JSON.stringify(answer.exceptionDetails));
      return answer.result.value;
    };
    // Colours that are on their way from light to dark are nobody's.
    await run('Promise.allSettled(document.getAnimations().map((a) => a.finished)).then(() => true)');
    await run(axe);
    return JSON.parse(await run(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => JSON.stringify({
      wide: document.documentElement.scrollWidth,
      violations: violations.map(({ id, impact, help, nodes }) => ({
        id, impact, help, nodes: nodes.map((n) => n.html.slice(0, 200) + ': ' + n.failureSummary),
      })),
    }))`));
  } finally {
    await session.detach();
  }
}

// signed calls the public API with a key.
async function signed(publicKey, privateKey) {
  const timestamp = Math.floor(Date.now() / 1000).toString();
  const target = '/api/v1/me';
  const signature = createHmac('sha256', privateKey).update(`${timestamp}\nGET\n${target}\n`).digest('hex');
  const res = await fetch(base + target, {
    headers: { 'X-Public-Key': publicKey, 'X-Timestamp': timestamp, 'X-Signature': signature },
    signal: AbortSignal.timeout(60_000),
  });
  await res.text();
  return res.status;
}

const back = await callback();
const provider = new Provider({ redirectUrl: back.url, name: 'Ada’s Assistant' });
const transport = new StreamableHTTPClientTransport(new URL(endpoint), { authProvider: provider });
let client;
const began = performance.now();

await step('opened in a browser, the addresses say what they are for', async () => {
  for (const [name, path] of Object.entries({ home: '/', endpoint: '/mcp' })) {
    const res = await page.goto(base + path);
    assert.equal(res.status(), 200);
    assert.ok((await page.getByRole('main').innerText()).includes(endpoint));
    await look(name);
    await page.getByRole('link', { name: 'Manage connections' }).click();
    assert.equal(await page.getByRole('heading', { level: 1 }).innerText(), 'Sign in');
  }
});

await step('an assistant sends the browser to the sign-in page', async () => {
  const first = new Client({ name: 'assistant', version: '1.0.0' });
  await assert.rejects(first.connect(transport), (err) => err instanceof UnauthorizedError);
  await page.goto(provider.asked[0].href);
  assert.equal(await page.getByRole('heading', { level: 1 }).innerText(), 'Sign in');
  await look('sign-in');
});

await step('whoever is not known stays outside, and does not learn why', async () => {
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password').fill('not the password');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').waitFor();
  await look('sign-in-refused');
});

await step('the owner signs in with the keyboard', async () => {
  await page.getByLabel('Password').fill(password);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Connect', exact: true }).waitFor();
  assert.match(await page.getByRole('heading', { level: 1 }).innerText(), /Connect .*Ada’s Assistant.* to /);
});

await step('the approval page says who asks, and turns nothing on that changes something', async () => {
  await look('approve');
  const text = await page.getByRole('main').innerText();
  assert.match(text, /127\.0\.0\.1/);
  assert.match(text, /runs on the computer or phone that you are using/);
  for (const group of ['What it may see', 'What it may change']) {
    const boxes = page.getByRole('group', { name: new RegExp(`^${group}`) }).getByRole('checkbox');
    assert.ok((await boxes.count()) > 2, group);
    for (const box of await boxes.all()) assert.equal(await box.isChecked(), group === 'What it may see');
  }
});

await step('Enter in a box decides nothing', async () => {
  await page.getByRole('checkbox').first().press('Enter');
  await page.getByRole('button', { name: 'Connect', exact: true }).focus(); // the page is still there
  assert.match(page.url(), /\/oauth\/approve/);
});

await step('the owner narrows it to contacts, which it may change, and connects', async () => {
  const may = (group, area) => page.getByRole('group', { name: group }).getByRole('checkbox', { name: new RegExp(`^${area}`) });
  for (const box of await page.getByRole('group', { name: /^What it may see/ }).getByRole('checkbox').all()) await box.uncheck();
  await may(/^What it may see/, 'Contacts').check();
  await may(/^What it may change/, 'Contacts').check();
  const answer = back.wait(provider.asked[0].searchParams.get('state'));
  await page.getByRole('button', { name: 'Connect', exact: true }).click();
  await transport.finishAuth((await answer).searchParams);
  await page.getByText('You can close this page.').waitFor(); // the browser is where it was sent, before it is sent on
  assert.equal(provider.kept.scope, 'contacts:write'); // which is looking at them, too
});

await step('the assistant works with what it got', async () => {
  client = new Client({ name: 'assistant', version: '1.0.0' });
  await client.connect(new StreamableHTTPClientTransport(new URL(endpoint), { authProvider: provider }));
  const { tools } = await client.listTools();
  assert.ok(tools.every((t) => t.name.startsWith('contacts_')), tools.map((t) => t.name).join());
  content(await client.callTool({ name: 'contacts_search', arguments: { limit: 1 } }));
  fact('from the first call to the first result, with a browser, in ms', Math.round(performance.now() - began));
});

await step('the assistant is told what it may not do, and where the owner allows it', async () => {
  const may = `This connection may not: see [^;]*automations[^;]*; change [^;]*custom objects; run automations. An owner of the business can allow it under ${base}/settings/connected-apps.`;
  assert.match(client.getInstructions(), new RegExp(may));
});

await step('the owner extends the connection with the keyboard, and the same assistant can do more at once', async () => {
  await page.goto(`${base}/settings/connected-apps`);
  await page.getByRole('link', { name: /^Change what it may do \(Ada’s Assistant/ }).click();
  await page.getByRole('button', { name: 'Save' }).waitFor();
  await look('change');
  const box = (name) => page.getByRole('checkbox', { name });
  assert.ok(await box(/^Contacts Add, change/).isChecked());
  assert.equal(await box(/^Without asking/).count(), 0);
  await box(/^Automations Run/).focus();
  await page.keyboard.press('Space');
  await page.keyboard.press('Enter'); // in a box, it saves nothing
  await page.getByRole('button', { name: 'Save' }).focus();
  assert.ok(await box(/^Automations Run/).isChecked(), 'the form is the one that was open');
  assert.equal(await page.getByRole('status').count(), 0);
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  await look('change-see');
  assert.ok(await box(/^Automations See/).isChecked(), 'who runs them sees them');
  await page.getByRole('button', { name: 'Save' }).press('Enter');
  await page.getByRole('status').waitFor();
  await box(/^Without asking/).check();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('status').waitFor();
  assert.ok(await box(/^Without asking/).isChecked());
  await look('change-saved');
  const announced = new Promise((resolve) => client.setNotificationHandler('notifications/tools/list_changed', resolve));
  content(await client.callTool({ name: 'automations_list', arguments: {} }));
  await announced;
  const { tools } = await client.listTools();
  assert.ok(tools.some((t) => t.name === 'automations_run'), tools.map((t) => t.name).join());
});

await step('nothing is saved without a choice', async () => {
  for (const box of await page.getByRole('checkbox').all()) await box.uncheck();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('alert').waitFor();
  await look('change-refused');
  content(await client.callTool({ name: 'automations_list', arguments: {} }));
});

await step('the owner sees the connection, and disconnects it', async () => {
  await page.goto(`${base}/settings/connected-apps`);
  const app = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: 'Ada’s Assistant' }) });
  assert.match(await app.innerText(), /contacts/i);
  await look('connected-apps');
  await app.getByRole('link', { name: /^Disconnect/ }).click();
  await page.getByRole('button', { name: 'Disconnect' }).waitFor();
  await look('disconnect');
  await page.getByRole('button', { name: 'Disconnect' }).click();
  await page.getByRole('status').waitFor();
  assert.equal(await app.count(), 0);
  await look('connected-apps-none');
});

await step('the assistant’s next call is refused', async () => {
  await assert.rejects(client.callTool({ name: 'contacts_search', arguments: { limit: 1 } }));
  await client.close();
});

let publicKey, first;

await step('the owner issues a key, whose private part is shown once', async () => {
  await page.goto(`${base}/settings/api`);
  await look('keys-none');
  await page.getByRole('radio', { name: /^Test/ }).check();
  await page.getByRole('button', { name: 'Issue key' }).click();
  publicKey = await page.getByLabel('Public key').inputValue();
  first = await page.getByLabel('Private key').inputValue();
  await look('new-key');
  assert.equal(await signed(publicKey, first), 200);
  await page.goto(`${base}/settings/api`);
  assert.ok(!(await page.content()).includes(first));
});

const rotate = async (choice) => {
  await page.goto(`${base}/settings/api`);
  await page.getByRole('link', { name: `Rotate ${publicKey}` }).click();
  await page.getByRole('button', { name: 'Rotate key' }).waitFor();
  await look('rotate-key');
  await page.getByRole('radio', { name: choice }).check();
  await page.getByRole('button', { name: 'Rotate key' }).click();
  return page.getByLabel('Private key').inputValue();
};

let second;

await step('rotated with a grace of an hour, the old key works on and the page says until when', async () => {
  const [before, hour, minute] = [Date.now(), 3_600_000, 60_000];
  second = await rotate(/^For 1 hour/);
  const after = Date.now(); // which may be long after, on a slow machine
  const until = Date.parse(await page.locator('main time').first().getAttribute('datetime'));
  assert.ok(before + hour - minute < until && until < after + hour + minute, new Date(until).toISOString());
  assert.equal(await signed(publicKey, second), 200);
  assert.equal(await signed(publicKey, first), 200);
  await look('rotated-key');
  fact('the old key ends', new Date(until).toISOString());
  fact('public key', publicKey);
});

await step('a key that nobody has seen is replaced, and the one before keeps working', async () => {
  const unseen = second;
  second = await rotate(/^Only the newest one/);
  assert.equal(await signed(publicKey, second), 200);
  assert.equal(await signed(publicKey, unseen), 401);
  assert.equal(await signed(publicKey, first), 200);
});

await step('rotated without one, both old keys end when the page says so: at once', async () => {
  const third = await rotate(/^Both/);
  assert.match(await page.getByRole('main').innerText(), /The old private key no longer works/);
  assert.equal(await signed(publicKey, first), 401);
  assert.equal(await signed(publicKey, second), 401);
  assert.equal(await signed(publicKey, third), 200);
  first = third;
});

await step('a revoked key ends', async () => {
  await page.goto(`${base}/settings/api`);
  await look('keys');
  await page.getByRole('link', { name: `Revoke ${publicKey}` }).click();
  await page.getByRole('button', { name: 'Revoke key' }).waitFor();
  await look('revoke-key');
  await page.getByRole('button', { name: 'Revoke key' }).click();
  await page.getByRole('status').waitFor();
  assert.equal(await signed(publicKey, first), 401);
});

await step('the owner finds all of it under activity', async () => {
  await page.goto(`${base}/settings/activity`);
  const text = await page.getByRole('main').innerText();
  assert.match(text, /Ada’s Assistant/);
  assert.ok(text.includes(publicKey), text);
  await look('activity');
});

await step('a request that is over, and a client that is not known, are said so in words', async () => {
  for (const [name, path] of Object.entries({
    'request-over': '/oauth/approve?request=unknown',
    'unknown-client': `/oauth/authorize?client_id=unknown&redirect_uri=${encodeURIComponent(back.url)}&response_type=code`,
  })) {
    const res = await page.goto(base + path);
    assert.ok(res.status() >= 400 && res.status() < 500, `${path}: ${res.status()}`);
    assert.equal(new URL(page.url()).origin, base);
    assert.match(res.headers()['content-type'], /^text\/html/);
    await look(name);
  }
});

await step('signed out, the pages are closed, with the back button too', async () => {
  await page.goto(`${base}/sign-out`);
  await look('sign-out');
  await page.goto(`${base}/settings/connected-apps`);
  await page.getByRole('button', { name: 'Sign out', exact: true }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await page.goBack();
  await page.reload();
  assert.equal(await page.getByRole('heading', { level: 1 }).innerText(), 'Sign in');
});

await step('a member of the business may look, and decide nothing', async () => {
  await assert.rejects(
    new Client({ name: 'assistant', version: '1.0.0' }).connect(
      new StreamableHTTPClientTransport(new URL(endpoint), { authProvider: provider })),
    (err) => err instanceof UnauthorizedError,
  );
  await page.goto(provider.asked.at(-1).href);
  await page.getByLabel('Email address').fill(process.env.MEMBER_EMAIL);
  await page.getByLabel('Password').fill(process.env.MEMBER_PASSWORD);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Only an owner can connect apps' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Connect', exact: true }).count(), 0);
  await look('not-owner');
  await page.goto(`${base}/settings/connected-apps`);
  await look('connected-apps-member');
  await page.goto(`${base}/settings/api`);
  assert.equal(await page.getByRole('button', { name: 'Issue key' }).count(), 0);
});

await step('the reference is read without scripts: a language for all requests, and the contents on a phone', async () => {
  await page.goto(`${base}/docs#listInvoices`);
  await look('reference');
  const top = () => page.locator('#listInvoices').boundingBox().then(({ y }) => Math.round(y));
  const shown = () => page.locator('.sample').filter({ visible: true }).allTextContents();
  const before = await top();
  await page.getByText('Python', { exact: true }).click();
  assert.ok((await shown()).every((code) => code.includes('urllib')), 'every request is in Python');
  assert.equal(await top(), before, 'the reader stays where they were');
  await page.setViewportSize(phone);
  await page.getByRole('link', { name: 'Contents' }).click();
  await page.getByRole('navigation').getByRole('link', { name: 'Jobs' }).click();
  assert.ok(page.url().endsWith('#listJobs'));
  assert.equal(await page.getByRole('navigation').isVisible(), false, 'the contents are gone');
  await page.setViewportSize(desk);
  await page.goto(`${base}/docs`);
  await page.keyboard.press('Tab');
  const skip = page.getByRole('link', { name: 'Skip to content' });
  assert.ok(await skip.evaluate((link) => {
    const { x, y, width, height } = link.getBoundingClientRect();
    return document.activeElement === link && document.elementFromPoint(x + width / 2, y + height / 2) === link;
  }), 'the link to the content is seen when it has the focus');
});

// A page that says no is one: the browser's console notes it.
assert.deepEqual(complaints.filter((c) => !/status of (4\d\d)/.test(c)), []);
back.close();
await browser.close();
report();
