// The whole life of a connection, the same for every SDK: the drivers say how theirs is spoken to.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { Person } from './person.mjs';
import { Provider } from './provider.mjs';
import { base, callback, content, endpoint, recorder, step } from './steps.mjs';

const reading = ['contacts:read', 'business:read'];

/**
 * sdk is {
 *   name           of the application
 *   metadata       address of the application's metadata document; without one it registers itself
 *   transport      (provider, fetch) => a new transport
 *   connect        (transport) => a connected client
 *   finish         (transport, address) => redeems the code in the address that the person was sent back to
 *   unauthorized   (error) => whether the SDK says by it that the person has to sign in
 *   stepUp         how the SDK asks for more after a 403: 'by itself', or 'with help'
 * }
 */
export async function journey(sdk) {
  const person = new Person();
  const back = await callback();
  const provider = new Provider({ redirectUrl: back.url, name: sdk.name, clientMetadataUrl: sdk.metadata });
  const wire = recorder();
  let transport = sdk.transport(provider, wire.fetch);

  // approve answers the SDK's latest authorization request as the person wants, over the application's own listener.
  const approve = async (allow) => {
    const request = provider.asked.at(-1);
    const answer = back.wait(request.searchParams.get('state'));
    const res = await fetch(await person.decide(request.href, { allow }));
    assert.equal(res.status, 200);
    await res.text();
    return answer;
  };

  await step('the refusal of the first call leads to the sign-in page', async () => {
    await assert.rejects(sdk.connect(transport), sdk.unauthorized);
    assert.equal(wire.exchanges[0].status, 401);
    assert.match(wire.exchanges[0].challenge, /^Bearer .*resource_metadata="/);
    assert.equal(provider.asked.length, 1);
    const asked = provider.asked[0].searchParams;
    assert.equal(asked.get('code_challenge_method'), 'S256');
    assert.equal(asked.get('resource'), endpoint);
    if (sdk.metadata) {
      assert.equal(asked.get('client_id'), sdk.metadata);
      assert.equal(wire.last('/oauth/register'), undefined);
    } else {
      assert.equal(wire.last('/oauth/register').status, 201);
    }
  });

  await step('the owner allows to look at some areas', async () => {
    const answer = await approve(reading);
    assert.equal(answer.searchParams.get('iss'), base);
    await sdk.finish(transport, answer);
    assert.deepEqual(provider.kept.scope.split(' ').sort(), [...reading].sort());
    assert.ok(provider.kept.refresh_token);
  });

  transport = sdk.transport(provider, wire.fetch);
  const client = await step('the application connects', () => sdk.connect(transport));

  await step('only tools that may be called are listed', async () => {
    const { tools } = await client.listTools();
    const names = tools.map((t) => t.name).sort();
    assert.deepEqual(names, ['business_get', 'contacts_get', 'contacts_search']);
    for (const t of tools) assert.equal(t.annotations.readOnlyHint, true, t.name);
  });

  await step('a tool that looks answers', async () => {
    const found = content(await client.callTool({ name: 'contacts_search', arguments: { limit: 3 } }));
    assert.equal(found.contacts.length, 3);
    content(await client.callTool({ name: 'contacts_get', arguments: { id: found.contacts[0].id } }));
  });

  const email = `${randomUUID()}@example.com`;
  const add = { name: 'contacts_create', arguments: { first_name: 'Ada', last_name: 'Lovelace', email } };

  await step('a tool that changes something is refused, and leads to the sign-in page again', async () => {
    const before = provider.asked.length;
    await assert.rejects(client.callTool(add), (err) => {
      if (sdk.stepUp === 'by itself') return sdk.unauthorized(err);
      return true;
    });
    const refused = wire.exchanges.findLast((e) => e.status === 403);
    assert.match(refused.challenge, /error="insufficient_scope"/);
    assert.match(refused.challenge, /scope="[^"]*contacts:write/);
    if (sdk.stepUp === 'with help') await sdk.askForMore(provider, wire.fetch, refused.challenge);
    assert.equal(provider.asked.length, before + 1);
    assert.match(provider.asked.at(-1).searchParams.get('scope'), /contacts:write|mcp:(write|use)/);
  });

  await step('the owner allows to change contacts, and the same call goes through', async () => {
    const answer = await approve([...reading, 'contacts:write']);
    await sdk.finish(transport, answer);
    assert.ok(provider.kept.scope.split(' ').includes('contacts:write'), provider.kept.scope);
    const made = content(await client.callTool(add));
    const found = content(await client.callTool({ name: 'contacts_search', arguments: { query: email } }));
    assert.equal(found.contacts.length, 1, JSON.stringify({ made, found }));
  });

  await step('an access token that is good no more is refreshed, and its refresh token replaced', async () => {
    const old = provider.kept;
    provider.kept = { ...old, access_token: 'lost' };
    content(await client.callTool({ name: 'business_get', arguments: {} }));
    assert.notEqual(provider.kept.access_token, old.access_token);
    assert.notEqual(provider.kept.access_token, 'lost');
    assert.notEqual(provider.kept.refresh_token, old.refresh_token);
    assert.match(wire.last('/oauth/token').sent, /grant_type=refresh_token/);
  });

  await step('disconnected in Settings, the next call is refused', async () => {
    const { apps } = await person.connections(base);
    assert.ok(apps.some((a) => a.name === sdk.name), JSON.stringify(apps));
    assert.ok((await person.disconnect(base, sdk.name)) >= 1);
    const before = wire.exchanges.length;
    await assert.rejects(client.callTool({ name: 'business_get', arguments: {} }));
    const call = wire.exchanges.slice(before).find((e) => e.path === '/mcp');
    assert.equal(call.status, 401);
    assert.match(call.challenge, /error="invalid_token"/);
    const refresh = wire.exchanges.slice(before).find((e) => e.path === '/oauth/token');
    assert.equal(refresh?.status, 400);
  });

  await client.close();
  back.close();
}
