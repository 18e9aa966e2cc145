// Package pages is what a person sees of the connection server: sign in, approve a connection, the connected apps, the
// keys of the business, what was done with them, and errors.
//
// The pages are HTML made here, with one style sheet and nothing else: no script, nothing from another origin. They work
// with a keyboard and a screen reader, light and dark, on a phone.
//
// # Sessions
//
// A session is a random id in a cookie. Redis knows only the id's hash, whose account it is and since when; what the
// account may do is asked of the accounts service for every page, so that a role that changed, or an account that is gone,
// is noticed at once. A session ends when it was not used for a while, at a fixed age whatever happens, and when it is
// signed out of; signing out everywhere ends all of an account's.
//
// # Cookies
//
// On an https issuer every cookie has the __Host- prefix and is Secure: no other host, and nobody between, can set one. On
// a plain http issuer, which has to be a loopback one and is for development, browsers disagree about such cookies
// (Chromium takes them from http://localhost and http://127.0.0.1, Safari does not), so that prefix and Secure are left out
// there. Cookies do not know ports: whatever else runs on such a host can read and set them.
package pages
