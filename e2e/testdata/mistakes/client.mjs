// Sends one request with a mistake: client.mjs MISTAKE, with URL, KEY and SECRET in the environment.
import crypto from 'node:crypto';

const mistake = process.argv[2];
const { URL: base, KEY: key, SECRET: secret } = process.env;
const url = new URL('/api/v1/equipment?category=Power%20tools&page=2', base);
let body;
let timestamp = String(Math.floor(Date.now() / 1000));
let path = url.pathname + url.search;

if (mistake === 'milliseconds') timestamp = String(Date.now());
if (mistake === 'pathname') path = url.pathname;
if (mistake === 'href') path = url.href;
if (mistake === 'searchParams') path = `${url.pathname}?${url.searchParams}`;

let message = [timestamp, 'GET', path, ''].join('\n');
if (mistake === 'undefined body') message = `${timestamp}\nGET\n${path}\n${body}`;
if (mistake === 'JSON') message = JSON.stringify({ timestamp, method: 'GET', path, body: '' });
const hmac = crypto.createHmac('sha256', secret).update(message);
const signature = hmac.digest(mistake === 'base64' ? 'base64' : 'hex');

await fetch(url, { headers: { 'X-Public-Key': key, 'X-Timestamp': timestamp, 'X-Signature': signature } });
