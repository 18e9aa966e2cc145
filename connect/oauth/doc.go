// Package oauth is the authorization server through which AI assistants are connected to a business's account. It is
// narrow on purpose: the authorization code grant with PKCE (S256) for public clients, refresh tokens that rotate, and
// what clients need to find and use them.
//
//	/.well-known/oauth-protected-resource[/mcp]   RFC 9728; CORS
//	/.well-known/oauth-authorization-server       RFC 8414, and openid-configuration with the same content; CORS
//	/oauth/authorize                              OAuth 2.1 draft, RFC 7636, 8707, 9207
//	/oauth/token                                  the same; CORS
//	/oauth/revoke                                 RFC 7009; CORS
//	/oauth/register                               RFC 7591; CORS
//
// A request at /oauth/authorize that is in order waits, under an id that cannot be guessed, for a person's decision on
// the approval page, which calls [Server.Pending] and [Server.Approve] or [Server.Deny]. What is approved is a [Grant]:
// a connection. [Server.Protect] lets its access tokens through, [Server.Grants] lists and [Server.Revoke] ends it. It also
// ends with the account that has approved it.
//
// # Clients and where they are sent
//
// A client is known by the https URL of its metadata document (the OAuth client-id metadata document draft), which is
// fetched from public addresses only, without following redirects, within 5 s and 32 KiB, and kept as its HTTP headers
// say, from 1 minute to 1 hour; or by an id that it got at /oauth/register, forgotten 90 days after its last successful
// token request, or a day after the registration if there was none. All are public clients: whatever secret they would
// like to have, they get none.
//
// A redirect URI has to be one of the client's, byte for byte; for http on localhost, 127.0.0.1 and [::1] the port is
// free (RFC 8252, section 7.3). Allowed are https, http on those three, and private-use schemes: reverse domain names
// (RFC 8252, section 7.1) and those of Options.ClientSchemes. An error at /oauth/authorize is sent to loopback addresses
// only. Anywhere else it is shown to the person, because everybody can register a client, and the gateway is nobody's open
// redirector (RFC 9700, section 4.11.2). After a person's decision everything goes to the client.
//
// # Lifetimes
//
//	authorization request   10 min
//	authorization code      60 s, one use; a second valid use ends the connection
//	access token            60 min; at most 32 of a connection, the oldest end first
//	refresh token           60 days without use, one use
//	connection              365 days
//	registration            90 days without use, 1 day if it was never used
//
// All of them are by Redis's clock: that of a gateway decides nothing.
//
// A refresh token that was used stays good for 120 s, since clients do lose answers, for at most 8 repetitions: each of
// them gets the very tokens that the first use got, so that of any number of uses at once one wins and all who are
// answered share what it won. Used after that, or after its successor was used, it ends the connection. An access token
// that was revoked (RFC 7009) stays so when it is in such a response.
//
// # What is kept, and what happens if it is lost
//
// Everything is in Redis (6.2 or newer), each key with a time to live:
//
//	<prefix>{<id>}:request    an authorization request, 10 min
//	<prefix>{<id>}            a connection with all its tokens, until the last of them ends
//	<prefix>{<id>}:attempts   the ids of the last attempts that have changed it, 2 min
//	<prefix>business:<id>     the ids of a business's connections; those that have ended are taken out by who reads it
//	<prefix>client:<id>       a registration
//	<prefix>document:<hash>   a client's metadata document
//	rate:<prefix>…            redis_rate's counters
//
// All that a request has to change at once shares a hash tag, and so a Cluster slot: the id is part of every token and
// code. Of tokens and codes only SHA-256 hashes are stored. Every change is one Lua script, which is sent again if its
// reply is lost: an attempt that has made its change says so again.
//
// The audit log has an entry of each connection that was approved, denied, begun or ended. It is stored before the change
// and resolved by what the script said; if no reply came at all, as unknown.
//
// Redis has to keep this like a database: with an append-only file ("appendfsync everysec" or stricter) or snapshots
// and replicas, and "maxmemory-policy noeviction" or a volatile policy that never bites. What a loss costs:
//
//   - All of it: every connection has to be approved again, and every registered client has to register again (it is
//     told invalid_client, upon which clients do). Nothing is accepted that was not before.
//   - The last moments before a crash or a failover: a connection approved or a client registered in them is gone; a
//     refresh that was answered in them makes the next one look like the use of an old token, and ends the connection;
//     and a revocation in them is undone, which is why a page should show connections as they are now.
//
// While Redis cannot be asked every answer is 503 with Retry-After, never invalid_grant or invalid_token, upon which
// clients would throw their tokens away.
package oauth
