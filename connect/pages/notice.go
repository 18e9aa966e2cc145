package pages

import (
	"net/http"
	"time"
)

// A notice is what the page after a change says was done. Its name travels in a cookie, not in the address, where anybody
// could put one.
const noticeAge = time.Minute

// The notices.
const (
	noticeSignedOut           = "signed-out"
	noticeSignedOutEverywhere = "signed-out-everywhere"
	noticeDisconnected        = "disconnected"
	noticeNoConnection        = "no-connection"
	noticeKeyRevoked          = "key-revoked"
	noticeNoKey               = "no-key"
)

// notice returns the text of the notice that the browser carries, "" if none, and takes it away.
func (p *Pages) notice(w http.ResponseWriter, r *http.Request) string {
	name := p.cookies.get(r, noticeCookie)
	if name == "" {
		return ""
	}
	p.cookies.clear(w, noticeCookie)
	switch name {
	case noticeSignedOut:
		return "You are signed out."
	case noticeSignedOutEverywhere:
		return "You are signed out, here and everywhere else."
	case noticeDisconnected:
		return "Disconnected. The app can no longer reach your account."
	case noticeNoConnection:
		return "That app is not connected, or not any more."
	case noticeKeyRevoked:
		return "The key is revoked. Requests signed with it are refused."
	case noticeNoKey:
		return "There is no such key, or not any more."
	default:
		return ""
	}
}

// done sends the browser to a page that says what was done.
func (p *Pages) done(w http.ResponseWriter, notice, to string) error {
	p.cookies.set(w, noticeCookie, notice, noticeAge)
	return &redirectError{to: to}
}
