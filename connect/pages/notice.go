package pages

import (
	"net/http"
	"time"
)

// noticeAge is the lifetime of the cookie with the name of a notice, which says on the next page what became of a form. The name is not in the
// URL, because anyone could make up a link with it.
const noticeAge = time.Minute

// Names of notices.
const (
	noticeSignedOut           = "signed-out"
	noticeSignedOutEverywhere = "signed-out-everywhere"
	noticeSessionEnded        = "session-ended"
	noticeDisconnected        = "disconnected"
	noticeNoConnection        = "no-connection"
	noticeChanged             = "changed"
	noticeKeyRevoked          = "key-revoked"
	noticeNoKey               = "no-key"
)

func notices() map[string]string {
	return map[string]string{
		noticeSignedOut:           "You are signed out.",
		noticeSignedOutEverywhere: "You are signed out, here and everywhere else.",
		noticeSessionEnded:        "Your session had ended, so nothing was changed. Sign in and try again.",
		noticeDisconnected:        "Disconnected. If the app is still listed below, it has another connection.",
		noticeNoConnection:        "This app is not connected. It may already have been disconnected.",
		noticeChanged:             "Saved. It takes effect with the app’s next request.",
		noticeKeyRevoked:          "The key is revoked. Requests signed with it are rejected.",
		noticeNoKey:               "Key not found. It may already have been revoked.",
	}
}

// notice returns the text of the pending notice, or "", and clears it.
func (p *Pages) notice(w http.ResponseWriter, r *http.Request) string {
	name := p.cookies.get(r, noticeCookie)
	if name != "" {
		p.cookies.clear(w, noticeCookie)
	}
	return notices()[name]
}

// done redirects to a page with a notice.
func (p *Pages) done(w http.ResponseWriter, notice, to string) error {
	p.cookies.set(w, noticeCookie, notice, noticeAge)
	return &redirectError{to: to}
}
