package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
)

// Keys manages the keys of the public API. Its errors are those below in the sense of errors.Is; any other is taken for
// an outage.
type Keys interface {
	// List returns the keys of a business.
	List(ctx context.Context, businessID string) ([]Key, error)

	// Issue makes a new pair of keys. ErrTooManyKeys.
	Issue(ctx context.Context, business Business, test bool) (IssuedKey, error)

	// Rotate gives a key of the business a new private key. The old one goes on working for grace, or, if grace is 0,
	// ends at once with any before it. ErrNoKey, also for another business's; a *GraceError.
	Rotate(ctx context.Context, businessID, publicKey string, grace time.Duration) (IssuedKey, error)

	// Revoke ends a key of the business for good. ErrNoKey, also for another business's.
	Revoke(ctx context.Context, businessID, publicKey string) error
}

// What [Keys] have to say beside success.
var (
	// ErrNoKey says that the business has no such key.
	ErrNoKey = errors.New("no such key")

	// ErrTooManyKeys says that the business has as many keys as it may.
	ErrTooManyKeys = errors.New("too many keys")
)

// GraceError says that the private key before the current one was promised to work for a while, and only two can.
type GraceError struct{ Until time.Time }

// Error says until when.
func (e *GraceError) Error() string {
	return "the previous private key still works until " + e.Until.UTC().Format(time.RFC3339)
}

// Business is whom a key is issued for.
type Business struct{ ID, Name, Slug string }

// Key is a key as it is listed.
type Key struct {
	PublicKey     string
	Test          bool
	Active        bool      // false: the account is inactive, and the key is refused
	PreviousUntil time.Time // until when the private key before the last rotation works; zero: none does
	Limit         int       // requests a minute; 0: the usual limit
}

// IssuedKey is a key with its private key, which is shown once.
type IssuedKey struct {
	Key
	PrivateKey PrivateKey
}

// PrivateKey is a private key. Printed or logged it shows "[redacted]"; Reveal is the one way to its bytes.
type PrivateKey string

// Reveal returns the key itself, for the page that shows it.
func (k PrivateKey) Reveal() string { return string(k) }

// Format writes "[redacted]" for every verb.
func (PrivateKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[redacted]") }

// MarshalText returns "[redacted]".
func (PrivateKey) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// grace is a choice of how long the old private key goes on working.
type grace struct {
	Value, Text, Hint string
	Checked           bool
	length            time.Duration
}

func graces() []grace {
	return []grace{
		{Value: "1h", Text: "For 1 hour", length: time.Hour},
		{Value: "24h", Text: "For 1 day", length: 24 * time.Hour, Checked: true},
		{Value: "168h", Text: "For 7 days", length: 7 * 24 * time.Hour},
		{
			Value: "0", Text: "Not at all",
			Hint: "Choose this if somebody else may know the old key. Whatever still uses it stops working at once.",
		},
	}
}

// keysView is the list of keys.
type keysView struct {
	Token   string
	Keys    []keyItem
	Problem string
	Testing bool // the new key's kind, as it was chosen before
}

type keyItem struct {
	Key
	RotateURL, RevokeURL string
	Now                  time.Time
}

// keyView is a page about one key: to rotate it, to revoke it, or to show its private key.
type keyView struct {
	Token, PublicKey, PrivateKey string
	Test                         bool
	Graces                       []grace
	Until                        time.Time // the end of the private key before
	Rotated, AtOnce              bool
	Problem                      string
}

func (p *Pages) showKeys(w http.ResponseWriter, r *http.Request) error {
	s, err := p.keyOwner(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	switch {
	case q.Has("rotate"):
		return p.askAboutKey(w, r, s, q.Get("rotate"), viewRotate, "Rotate a key")
	case q.Has("revoke"):
		return p.askAboutKey(w, r, s, q.Get("revoke"), viewRevokeKey, "Revoke a key")
	default:
		return p.answerKeys(w, r, http.StatusOK, s, keysView{})
	}
}

// keyOwner returns who is signed in if they may manage keys.
func (p *Pages) keyOwner(r *http.Request) (*session, error) {
	s, err := p.signedIn(r, KeysPath)
	if err != nil {
		return nil, err
	}
	if err := ownerOnly(s.account, "manage keys"); err != nil {
		return nil, err
	}
	return s, nil
}

func (p *Pages) answerKeys(w http.ResponseWriter, r *http.Request, status int, s *session, v keysView) error {
	keys, err := p.keys.List(r.Context(), s.account.BusinessID)
	if err != nil {
		return unavailable(err)
	}
	now := p.now()
	for _, k := range keys {
		if !now.Before(k.PreviousUntil) {
			k.PreviousUntil = time.Time{}
		}
		v.Keys = append(v.Keys, keyItem{
			Key: k, Now: now,
			RotateURL: keyURL("rotate", k.PublicKey), RevokeURL: keyURL("revoke", k.PublicKey),
		})
	}
	v.Token = s.token(formKeys)
	p.render(w, r, status, viewKeys, p.settings(w, r, s, "API and integrations", KeysPath), v)
	return nil
}

// askAboutKey shows the form that rotates or revokes a key.
func (p *Pages) askAboutKey(w http.ResponseWriter, r *http.Request, s *session, publicKey, view, title string) error {
	v, err := p.keyView(r, s, publicKey)
	if err != nil {
		return err
	}
	p.render(w, r, http.StatusOK, view, p.settings(w, r, s, title, KeysPath), v)
	return nil
}

func (p *Pages) keyView(r *http.Request, s *session, publicKey string) (keyView, error) {
	keys, err := p.keys.List(r.Context(), s.account.BusinessID)
	if err != nil {
		return keyView{}, unavailable(err)
	}
	i := slices.IndexFunc(keys, func(k Key) bool { return k.PublicKey == publicKey })
	if i < 0 {
		return keyView{}, noKey()
	}
	v := keyView{Token: s.token(formKeys), PublicKey: publicKey, Test: keys[i].Test, Graces: graces()}
	if p.now().Before(keys[i].PreviousUntil) {
		v.Until = keys[i].PreviousUntil
	}
	return v, nil
}

func noKey() *pageError {
	return &pageError{
		status: http.StatusNotFound, title: "There is no such key", detail: "It may have been revoked meanwhile.",
		link: KeysPath, label: "See your keys",
	}
}

func (p *Pages) changeKeys(w http.ResponseWriter, r *http.Request) error {
	s, err := p.keyOwner(r)
	if err != nil {
		return err
	}
	token := r.PostForm.Get(tokenField)
	if !checkToken(s.id, formKeys, token) {
		pr := forged()
		pr.link, pr.label = KeysPath, "Open the page again"
		return pr
	}
	publicKey := r.PostForm.Get("key")
	switch action := r.PostForm.Get("action"); action {
	case "issue", "rotate":
		if err := p.oncePerForm(r, s, token); err != nil {
			return err
		}
		if action == "issue" {
			return p.issueKey(w, r, s)
		}
		return p.rotateKey(w, r, s, publicKey)
	case "revoke":
		return p.revokeKey(w, r, s, publicKey)
	default:
		return badRequest("The form does not say what to do. Go back and choose again.", nil)
	}
}

// oncePerForm stops forms that were sent before, and accounts that change keys without end.
func (p *Pages) oncePerForm(r *http.Request, s *session, token string) error {
	first, err := p.once.first(r.Context(), token)
	if err != nil {
		return unavailable(err)
	}
	if !first {
		return &pageError{
			status: http.StatusConflict, title: "This was done already",
			detail: "The form was sent twice, and has done its work the first time. A private key is shown only once: " +
				"if you did not see it, rotate the key to get a new one.",
			link: KeysPath, label: "See your keys",
		}
	}
	wait, err := p.attempts.change(r.Context(), s.account.ID)
	if err != nil {
		return unavailable(err)
	}
	if wait > 0 {
		return &pageError{
			status: http.StatusTooManyRequests, title: "Too many changes",
			detail: "You have changed keys many times within the hour. Please try again in " + inWords(wait) + ".",
			retry:  wait, link: KeysPath, label: "See your keys",
		}
	}
	return nil
}

func (p *Pages) issueKey(w http.ResponseWriter, r *http.Request, s *session) error {
	test := r.PostForm.Get("kind") == "test"
	a := s.account
	issued, err := p.keys.Issue(r.Context(), Business{ID: a.BusinessID, Name: a.BusinessName, Slug: a.BusinessSlug}, test)
	if errors.Is(err, ErrTooManyKeys) {
		return p.answerKeys(w, r, http.StatusConflict, s, keysView{
			Problem: "Your business has as many keys as it can have. Revoke one that is not used any more first.", Testing: test,
		})
	}
	if err != nil {
		p.record(r, a, audit.Entry{Action: audit.KeyIssued, Outcome: audit.OutcomeFailed})
		return unavailable(err)
	}
	p.record(r, a, audit.Entry{Action: audit.KeyIssued, Target: issued.PublicKey})
	p.render(w, r, http.StatusOK, viewNewKey, p.settings(w, r, s, "Your new key", KeysPath),
		keyView{PublicKey: issued.PublicKey, PrivateKey: issued.PrivateKey.Reveal(), Test: issued.Test})
	return nil
}

func (p *Pages) rotateKey(w http.ResponseWriter, r *http.Request, s *session, publicKey string) error {
	chosen := r.PostForm.Get("grace")
	choices := graces()
	i := slices.IndexFunc(choices, func(g grace) bool { return g.Value == chosen })
	if i < 0 {
		return badRequest("The form does not say how long the old key goes on working. Go back and choose again.", nil)
	}
	entry := audit.Entry{Action: audit.KeyRotated, Target: publicKey}
	issued, err := p.keys.Rotate(r.Context(), s.account.BusinessID, publicKey, choices[i].length)
	var pending *GraceError
	switch {
	case errors.Is(err, ErrNoKey):
		return noKey()
	case errors.As(err, &pending):
		v, err := p.keyView(r, s, publicKey)
		if err != nil {
			return err
		}
		v.Problem = "This key was rotated lately, and the private key before still works until " + moment(pending.Until) +
			". Wait until then, or choose “Not at all” to end both old keys now."
		for j := range v.Graces {
			v.Graces[j].Checked = j == i
		}
		p.render(w, r, http.StatusConflict, viewRotate, p.settings(w, r, s, "Rotate a key", KeysPath), v)
		return nil
	case err != nil:
		entry.Outcome = audit.OutcomeFailed
		entry.Target = clean(publicKey, 2*maxLabel)
		p.record(r, s.account, entry)
		return unavailable(err)
	}
	entry.Detail = "The old private key ended at once"
	if !issued.PreviousUntil.IsZero() {
		entry.Detail = "The old private key works until " + moment(issued.PreviousUntil)
	}
	p.record(r, s.account, entry)
	p.render(w, r, http.StatusOK, viewNewKey, p.settings(w, r, s, "Your new private key", KeysPath), keyView{
		PublicKey: issued.PublicKey, PrivateKey: issued.PrivateKey.Reveal(), Test: issued.Test,
		Rotated: true, Until: issued.PreviousUntil, AtOnce: issued.PreviousUntil.IsZero(),
	})
	return nil
}

func (p *Pages) revokeKey(w http.ResponseWriter, r *http.Request, s *session, publicKey string) error {
	err := p.keys.Revoke(r.Context(), s.account.BusinessID, publicKey)
	switch {
	case errors.Is(err, ErrNoKey): // also the second of two clicks
		return p.done(w, noticeNoKey, KeysPath)
	case err != nil:
		p.record(r, s.account, audit.Entry{
			Action: audit.KeyRevoked, Target: clean(publicKey, 2*maxLabel), Outcome: audit.OutcomeFailed,
		})
		return unavailable(err)
	}
	p.record(r, s.account, audit.Entry{Action: audit.KeyRevoked, Target: publicKey})
	return p.done(w, noticeKeyRevoked, KeysPath)
}

// moment writes a point in time for people.
func moment(t time.Time) string {
	t = t.UTC()
	return strconv.Itoa(t.Day()) + t.Format(" January 2006, 15:04") + " UTC"
}
