package pages

import (
	"net/http"
	"time"
)

// Cookie names, without the __Host- prefix.
const (
	sessionCookie = "gatehouse_session" // the session's ID
	visitCookie   = "gatehouse_visit"   // binds the sign-in form to the browser
	deviceCookie  = "gatehouse_device"  // makes a browser known for the account that it signed in to last
	noticeCookie  = "gatehouse_notice"  // name of the pending notice
)

// cookies writes and reads cookies.
type cookies struct {
	secure bool // the issuer is https
}

func (c cookies) name(name string) string {
	if c.secure {
		return "__Host-" + name
	}
	return name
}

// set sets a cookie. An age of 0 means until the browser is closed.
func (c cookies) set(w http.ResponseWriter, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure on http only; see the package's documentation
		Name: c.name(name), Value: value, Path: "/", MaxAge: int(age / time.Second),
		Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

func (c cookies) clear(w http.ResponseWriter, name string) { c.set(w, name, "", -time.Second) }

// get returns a cookie's value, or "" if there is none or more than one.
func (c cookies) get(r *http.Request, name string) string {
	found := r.CookiesNamed(c.name(name))
	if len(found) != 1 {
		return ""
	}
	return found[0].Value
}
