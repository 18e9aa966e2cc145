// Package oauth is the authorization server through which AI assistants are connected to a business's account: OAuth 2.1
// with PKCE for public clients, with every state in Redis.
package oauth
