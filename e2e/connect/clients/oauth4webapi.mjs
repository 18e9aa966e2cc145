// oauth4webapi with every check that it has, over https: none of its ways to be lenient is used.
import assert from 'node:assert/strict';
import * as oauth from 'oauth4webapi';
import { Person } from './person.mjs';
import { base, callback, endpoint, report, step } from './steps.mjs';

const person = new Person();
const back = await callback();
const signal = () => AbortSignal.timeout(60_000);
const name = 'Strict client';

// call sends a request of the protocol of 2025-11-25 as JSON, and reads the answer in either form.
async function call(token, method, params = {}) {
  const res = await oauth.protectedResourceRequest(
    token,
    'POST',
    new URL(endpoint),
    new Headers({
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2025-11-25',
    }),
    JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    { signal: signal() },
  );
  const text = await res.text();
  const data = res.headers.get('content-type')?.startsWith('text/event-stream')
    ? text.split('\n').findLast((l) => l.startsWith('data:')).slice(5)
    : text;
  return { status: res.status, message: JSON.parse(data) };
}

// challenge is the one that an error of protectedResourceRequest carries.
async function challenge(promise) {
  try {
    await promise;
  } catch (err) {
    assert.ok(err instanceof oauth.WWWAuthenticateChallengeError, String(err));
    const bearer = err.cause.find((c) => c.scheme === 'bearer');
    assert.ok(bearer, JSON.stringify(err.cause));
    return { status: err.status, ...bearer.parameters };
  }
  assert.fail('the call was answered');
}

const resource = await step('the challenge leads to the metadata of the resource', async () => {
  const found = await challenge(call('unknown', 'tools/list'));
  assert.equal(found.status, 401);
  assert.equal(found.error, 'invalid_token');
  assert.equal(found.resource_metadata, `${base}/.well-known/oauth-protected-resource/mcp`);
  const res = await oauth.resourceDiscoveryRequest(new URL(endpoint), { signal: signal() });
  return oauth.processResourceDiscoveryResponse(new URL(endpoint), res);
});

const as = await step('and that to the authorization server', async () => {
  const issuer = new URL(resource.authorization_servers[0]);
  const res = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', signal: signal() });
  const found = await oauth.processDiscoveryResponse(issuer, res);
  assert.equal(found.issuer, base);
  const alias = await oauth.discoveryRequest(issuer, { signal: signal() });
  assert.deepEqual(await oauth.processDiscoveryResponse(issuer, alias), found);
  return found;
});

const client = await step('the client registers', async () => {
  const res = await oauth.dynamicClientRegistrationRequest(
    as,
    {
      client_name: name,
      redirect_uris: [back.url],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    },
    { signal: signal() },
  );
  return oauth.processDynamicClientRegistrationResponse(res);
});

async function ask({ allow, button, scope }) {
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  const url = new URL(as.authorization_endpoint);
  for (const [key, value] of Object.entries({
    client_id: client.client_id,
    redirect_uri: back.url,
    response_type: 'code',
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    resource: resource.resource,
    state,
    ...(scope && { scope }),
  })) {
    url.searchParams.set(key, value);
  }
  const answer = back.wait(state);
  const res = await fetch(await person.decide(url.href, { allow, button }), { signal: signal() });
  await res.text();
  return { verifier, state, address: await answer };
}

async function redeem({ verifier, state, address }) {
  const params = oauth.validateAuthResponse(as, client, address, state);
  const res = await oauth.authorizationCodeGrantRequest(as, client, oauth.None(), params, back.url, verifier, {
    additionalParameters: { resource: resource.resource },
    signal: signal(),
  });
  return oauth.processAuthorizationCodeResponse(as, client, res);
}

async function refresh(token) {
  const res = await oauth.refreshTokenGrantRequest(as, client, oauth.None(), token, {
    additionalParameters: { resource: resource.resource },
    signal: signal(),
  });
  return oauth.processRefreshTokenResponse(as, client, res);
}

await step('the owner says no, and the client is told so', async () => {
  const { state, address } = await ask({ button: 'Don’t connect' });
  assert.throws(
    () => oauth.validateAuthResponse(as, client, address, state),
    (err) => err instanceof oauth.AuthorizationResponseError && err.error === 'access_denied',
  );
  assert.equal(address.searchParams.get('iss'), base);
});

await step('without a scope the owner is asked for looking only', async () => {
  const { verifier, state, address } = await ask({});
  const tokens = await redeem({ verifier, state, address });
  assert.equal(tokens.scope, 'mcp:read');
});

let tokens = await step('with a scope the owner narrows it, and the code becomes tokens', async () => {
  const found = await redeem(await ask({ scope: 'mcp:use', allow: ['contacts:read'] }));
  assert.equal(found.token_type, 'bearer');
  assert.equal(found.scope, 'contacts:read');
  assert.equal(found.expires_in, 3600);
  assert.ok(found.refresh_token);
  return found;
});

await step('the token opens the resource', async () => {
  const { status, message } = await call(tokens.access_token, 'tools/list');
  assert.equal(status, 200);
  assert.deepEqual(message.result.tools.map((t) => t.name).sort(), ['contacts_get', 'contacts_search']);
});

await step('a tool out of its scope is refused with the scope that it needs', async () => {
  const params = { name: 'contacts_create', arguments: { first_name: 'Ada' } };
  const found = await challenge(call(tokens.access_token, 'tools/call', params));
  assert.equal(found.status, 403);
  assert.equal(found.error, 'insufficient_scope');
  assert.ok(found.scope.split(' ').includes('contacts:write'), found.scope);
});

await step('a refresh token is replaced by its use', async () => {
  const next = await refresh(tokens.refresh_token);
  assert.notEqual(next.refresh_token, tokens.refresh_token);
  assert.equal(next.scope, 'contacts:read');
  tokens = next;
  assert.equal((await call(tokens.access_token, 'tools/list')).status, 200);
});

await step('what the client gives back is worth nothing any more', async () => {
  const res = await oauth.revocationRequest(as, client, oauth.None(), tokens.refresh_token, { signal: signal() });
  await oauth.processRevocationResponse(res);
  const found = await challenge(call(tokens.access_token, 'tools/list'));
  assert.equal(found.status, 401);
  await assert.rejects(refresh(tokens.refresh_token), (err) => err.error === 'invalid_grant');
});

await step('a code that is used twice ends the connection', async () => {
  const asked = await ask({ scope: 'mcp:read' });
  const found = await redeem(asked);
  assert.equal((await call(found.access_token, 'tools/list')).status, 200);
  await assert.rejects(redeem(asked), (err) => err.error === 'invalid_grant');
  assert.equal((await challenge(call(found.access_token, 'tools/list'))).status, 401);
});

back.close();
report();
