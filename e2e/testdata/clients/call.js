// A business that signs with what Node.js brings along: its crypto, fetch, http and http2.
'use strict';
const crypto = require('node:crypto'), http = require('node:http'), http2 = require('node:http2');
const {URL_BASE: base, GATEHOUSE_KEY: key, GATEHOUSE_SECRET: secret} = process.env;
const {targets, body} = JSON.parse(process.env.CASES);
function sign(method, target, body) {
  const timestamp = Math.floor(Date.now() / 1000).toString();
  const signature = crypto.createHmac('sha256', secret)
    .update(timestamp + '\n' + method + '\n' + target + '\n').update(body).digest('hex');
  return {'X-Public-Key': key, 'X-Timestamp': timestamp, 'X-Signature': signature};
}
async function withFetch(target) {
  const url = new URL(base + target);
  // what fetch sends is what the URL says, not what was written: so that is signed
  const res = await fetch(url, {headers: sign('GET', url.pathname + url.search, '')});
  return {how: 'fetch', target, status: res.status, body: await res.text()};
}
function withHTTP(target, body) {
  return new Promise((resolve, reject) => {
    const {hostname, port} = new URL(base);
    const headers = sign('GET', target, body);
    if (body) headers['Content-Length'] = Buffer.byteLength(body);
    const req = http.request({hostname, port, path: target, method: 'GET', headers}, res => {
      let text = '';
      res.setEncoding('utf8').on('data', d => text += d)
        .on('end', () => resolve({how: 'http', target, status: res.statusCode, body: text}));
    });
    req.on('error', reject).end(body);
  });
}
function withHTTP2(session, target, body) {
  return new Promise((resolve, reject) => {
    const req = session.request({':method': 'GET', ':path': target, ...sign('GET', target, body)}, {endStream: !body});
    let status, text = '';
    req.setEncoding('utf8').on('response', h => status = h[':status']).on('data', d => text += d)
      .on('end', () => resolve({how: 'http2', target, status, body: text})).on('error', reject);
    if (body) req.end(body);
  });
}
(async () => {
  const all = [];
  for (const target of targets) all.push(await withFetch(target), await withHTTP(target, ''));
  all.push(await withHTTP('/api/v1/me', body));
  const session = http2.connect(base);
  for (const target of targets) all.push(await withHTTP2(session, target, ''));
  all.push(await withHTTP2(session, '/api/v1/me', body));
  session.close();
  process.stdout.write(JSON.stringify(all));
})().catch(err => { console.error(err); process.exit(1); });
