// Package pages serves the web pages of the connection server: sign-in, approval of a connection, connected apps, the keys of
// the business, its activity, errors, and how to connect an assistant. They show the platform's name, logo, accent colour and links.
//
// The pages are server-rendered HTML with one style sheet, no scripts and nothing from other origins. They work with a keyboard
// and a screen reader, in light and dark mode, and on a phone.
//
// # Sessions
//
// A session is a random ID in a cookie. Redis stores the account's ID and the start under the hash of the session's ID. Every page
// looks the account up in the accounts service, so that a changed role or a closed account takes effect immediately. A session ends
// after an idle timeout, at a maximum age, and at sign-out; signing out everywhere ends all sessions of the account.
//
// # Forms
//
// A form has a CSRF token that is bound to the session and the form's purpose; the token of the sign-in form is bound to a cookie.
// In addition, [http.CrossOriginProtection] rejects forms from other origins.
//
// # Cookies
//
// On an https issuer, every cookie is Secure and has the __Host- prefix, so that no other host can set it. On a plain http
// issuer, which is for development and has to be a loopback name or address, both are omitted, because Safari does not accept
// such cookies there. Cookies ignore ports, so other servers on such a host can read and set them.
package pages
