// The first generation of the official TypeScript SDK, with its own OAuth client.
import { auth, extractWWWAuthenticateParams, UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { journey } from './journey.mjs';
import { endpoint, report } from './steps.mjs';

await journey({
  name: 'First SDK',
  metadata: process.env.CLIENT_METADATA_URL,
  transport: (authProvider, fetch) => new StreamableHTTPClientTransport(new URL(endpoint), { authProvider, fetch }),
  connect: async (transport) => {
    const client = new Client({ name: 'first-sdk', version: '1.0.0' });
    await client.connect(transport);
    return client;
  },
  finish: (transport, address) => transport.finishAuth(address.searchParams.get('code')),
  unauthorized: (err) => err instanceof UnauthorizedError,
  // It refreshes where it should ask: an application that wants more has to give its refresh token up first.
  stepUp: 'with help',
  askForMore: async (provider, fetchFn, challenge) => {
    provider.invalidateCredentials('tokens');
    const { scope, resourceMetadataUrl } = extractWWWAuthenticateParams(
      new Response(null, { status: 403, headers: { 'www-authenticate': challenge } }),
    );
    await auth(provider, { serverUrl: endpoint, scope, resourceMetadataUrl, fetchFn });
  },
});
report();
