// Gets an access token for everything, for a client that cannot sign in by itself.
import * as oauth from 'oauth4webapi';
import { Person } from './person.mjs';
import { base, callback, endpoint, fact, report, step } from './steps.mjs';

const insecure = { [oauth.allowInsecureRequests]: true, signal: () => AbortSignal.timeout(60_000) };

await step('everything is allowed', async () => {
  const back = await callback();
  const issuer = new URL(base);
  const as = await oauth.processDiscoveryResponse(
    issuer, await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...insecure }));
  const client = await oauth.processDynamicClientRegistrationResponse(
    await oauth.dynamicClientRegistrationRequest(
      as, { client_name: 'Token', redirect_uris: [back.url], token_endpoint_auth_method: 'none' }, insecure));
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  const url = new URL(as.authorization_endpoint);
  url.search = new URLSearchParams({
    client_id: client.client_id, redirect_uri: back.url, response_type: 'code', scope: 'mcp:use', state, resource: endpoint,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
  });
  const address = new URL(await new Person().decide(url.href, { allow: '*' }));
  const params = oauth.validateAuthResponse(as, client, address, state);
  const res = await oauth.authorizationCodeGrantRequest(as, client, oauth.None(), params, back.url, verifier, insecure);
  fact('access token', (await oauth.processAuthorizationCodeResponse(as, client, res)).access_token);
});
report();
