// A person with a browser that runs no scripts: follows links and redirects, keeps cookies, and sends forms as they are
// written. It knows the pages by what a person reads on them (labels and buttons), not by how they are made.
//
//   node person.mjs URL   opens an authorization request, signs in, decides, and goes back to the app that asked
//
// The environment says who it is: GATEHOUSE_EMAIL, GATEHOUSE_PASSWORD; and where the decision is written and each visit
// noted, if there is such a folder: PERSON_FOLDER (see desktop.mjs).
import { appendFileSync, readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parse } from 'node-html-parser';
import { CookieJar } from 'tough-cookie';

const patience = 60_000;

export class Person {
  constructor({ email, password } = {}) {
    this.email = email ?? process.env.GATEHOUSE_EMAIL;
    this.password = password ?? process.env.GATEHOUSE_PASSWORD;
    this.jar = new CookieJar();
  }

  /** Opens a page, and follows redirects as long as they stay on its origin. */
  async open(url, init = {}) {
    const { origin } = new URL(url);
    for (let hops = 0; hops < 10; hops++) {
      const cookie = await this.jar.getCookieString(url);
      const res = await fetch(url, {
        ...init,
        redirect: 'manual',
        signal: AbortSignal.timeout(patience),
        headers: { accept: 'text/html', ...init.headers, ...(cookie && { cookie }) },
      });
      for (const set of res.headers.getSetCookie()) await this.jar.setCookie(set, url);
      const location = res.headers.get('location');
      if (res.status < 300 || res.status > 399 || !location) {
        const text = await res.text();
        return { url, status: res.status, headers: res.headers, text, html: parse(text) };
      }
      await res.body?.cancel();
      const next = new URL(location, url);
      if (next.origin !== origin) return { url: next.href, status: res.status, away: true };
      if (res.status === 303 || res.status === 302 || res.status === 301) init = {};
      url = next.href;
    }
    throw new Error(`too many redirects, the last to ${url}`);
  }

  /**
   * Sends the form that holds a button with this text, with the values that are in it and these.
   * A value is a string, a boolean for a check box or radio button, or undefined to leave the field as it is.
   */
  async press(page, button, values = {}) {
    const found = page.html?.querySelectorAll('button').find((b) => words(b) === button);
    if (!found) throw new Error(`no button “${button}” on ${describe(page)}`);
    const form = found.closest('form');
    const body = new URLSearchParams();
    const left = new Set(Object.keys(values));
    for (const field of form.querySelectorAll('input, select, textarea')) {
      const name = field.getAttribute('name');
      if (!name) continue;
      const label = labelOf(form, field);
      const key = [label, name].find((k) => left.has(k) || k in values);
      const value = key === undefined ? undefined : values[key];
      if (key !== undefined) left.delete(key);
      const type = (field.getAttribute('type') ?? 'text').toLowerCase();
      if (type === 'checkbox' || type === 'radio') {
        const checked = value ?? field.hasAttribute('checked');
        if (checked) body.append(name, field.getAttribute('value') ?? 'on');
      } else {
        body.append(name, value ?? field.getAttribute('value') ?? '');
      }
    }
    if (left.size) throw new Error(`no field ${[...left].map((k) => `“${k}”`)} on ${describe(page)}`);
    if (found.getAttribute('name')) body.append(found.getAttribute('name'), found.getAttribute('value') ?? '');
    const action = new URL(form.getAttribute('action') ?? '', page.url);
    return this.open(action.href, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded', origin: action.origin },
      body: body.toString(),
    });
  }

  /** Opens the link with this text. */
  async follow(page, text) {
    const link = page.html?.querySelectorAll('a').find((a) => words(a) === text);
    if (!link) throw new Error(`no link “${text}” on ${describe(page)}`);
    return this.open(new URL(link.getAttribute('href'), page.url).href);
  }

  /** Opens a page, and signs in on the way if asked to. */
  async visit(url) {
    const page = await this.open(url);
    if (page.away || heading(page) !== 'Sign in') return page;
    return this.press(page, 'Sign in', { 'Email address': this.email, Password: this.password });
  }

  /**
   * Decides on an authorization request and returns the address of the app that the browser is sent back to, with the
   * answer in its query. allow is a list of the check boxes to have checked, by the names of their scopes: all others are
   * taken out; without it the form is sent as it is shown. '*' checks every one.
   */
  async decide(url, { allow = undefined, button = 'Connect' } = {}) {
    const page = await this.visit(url);
    if (page.away) return page.url;
    const values = {};
    for (const box of page.html.querySelectorAll('input[type=checkbox]')) {
      const name = box.getAttribute('value');
      if (allow) values[labelOf(page.html, box)] = allow === '*' || allow.includes(name);
    }
    const answer = await this.press(page, button, values);
    if (!answer.away) throw new Error(`the decision led to ${describe(answer)}`);
    return answer.url;
  }

  /** The connected apps as the page shows them, and the page. */
  async connections(base) {
    const page = await this.visit(`${base}/settings/connected-apps`);
    const apps = page.html.querySelectorAll('li.app').map((li) => ({
      name: words(li.querySelector('h2')),
      disconnect: li.querySelectorAll('a').find((a) => words(a).startsWith('Disconnect'))?.getAttribute('href'),
      text: words(li),
    }));
    return { page, apps };
  }

  /** Disconnects every app with this name, and returns how many there were. */
  async disconnect(base, name) {
    let count = 0;
    for (; count < 20; count++) {
      const { page, apps } = await this.connections(base);
      const app = apps.find((a) => a.name === name);
      if (!app) return count;
      const sure = await this.open(new URL(app.disconnect, page.url).href);
      const done = await this.press(sure, 'Disconnect');
      if (done.status !== 200) throw new Error(`disconnecting led to ${describe(done)}`);
    }
    throw new Error(`there is no end of apps called ${name}`);
  }
}

/** The text of an element as a person reads it. */
export function words(element) {
  return (element?.text ?? '').replace(/\s+/g, ' ').trim();
}

export function heading(page) {
  return words(page.html?.querySelector('h1'));
}

function labelOf(root, field) {
  const id = field.getAttribute('id');
  const label = id && root.querySelectorAll('label').find((l) => l.getAttribute('for') === id);
  return label ? words(label) : undefined;
}

function describe(page) {
  if (page.away) return page.url;
  return `${page.status} ${new URL(page.url).pathname} “${heading(page)}”: ${words(page.html?.querySelector('main')).slice(0, 600)}`;
}

// goBack opens the app's own address. Apps begin to listen there while the person still reads, and this one reads fast.
async function goBack(url) {
  const until = Date.now() + patience;
  for (;;) {
    try {
      return await fetch(url, { signal: AbortSignal.timeout(patience) });
    } catch (err) {
      if (err.cause?.code !== 'ECONNREFUSED' || Date.now() > until) throw err;
      await setTimeout(50);
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.env.PERSON_FOLDER;
  const decision = folder ? JSON.parse(readFileSync(`${folder}/decision.json`, 'utf8')) : {};
  const back = await new Person().decide(process.argv[2], decision);
  // noted before the app hears of it, which may go on at once and ask how often the person was asked
  if (folder) appendFileSync(`${folder}/visits`, `${new URL(back).pathname}\n`);
  await (await goBack(back)).text();
}
