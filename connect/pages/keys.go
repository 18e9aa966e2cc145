package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// Keys manages the keys of the public API. Errors other than those below mean an outage, and that nothing was changed.
type Keys interface {
	// List returns the keys of a business, sorted by public key.
	List(ctx context.Context, businessID string) ([]Key, error)

	// Get returns a key of the business. Its error is ErrNoKey, also for another business's key.
	Get(ctx context.Context, businessID, publicKey string) (Key, error)

	// Issue creates a key pair on behalf of an account. Its errors are ErrAlreadyDone if it has created one for the same attempt ID
	// before, ErrTooManyKeys, ErrInactive and ErrOutcomeUnknown. With the first and the last, it also returns the public key.
	Issue(ctx context.Context, business account.Business, accountID, attempt string, test bool) (IssuedKey, error)

	// Rotate gives a key of the business a new private key. The old one keeps working for grace; if grace is 0, all old ones
	// stop working at once. Its errors are ErrNoKey, also for another business's key, ErrAlreadyDone if Key.Version is not
	// version, or if grace is KeepGrace without a previous private key that works, or positive with one, and ErrOutcomeUnknown.
	Rotate(ctx context.Context, businessID, publicKey, version string, grace time.Duration) (IssuedKey, error)

	// Revoke revokes a key of the business. Its errors are ErrAlreadyDone if it is already revoked, ErrNoKey if the business is
	// not known to have had it, ErrInactive and ErrOutcomeUnknown.
	Revoke(ctx context.Context, businessID, publicKey string) error
}

// Errors of [Keys].
var (
	ErrNoKey          = errors.New("no such key") // of the business
	ErrTooManyKeys    = errors.New("too many keys")
	ErrInactive       = errors.New("all keys of the business are inactive") // it gets no active one, and keeps them
	ErrAlreadyDone    = errors.New("already done")                          // by an earlier call; this one changed nothing
	ErrOutcomeUnknown = errors.New("unknown whether the key was changed")
)

// Key is a key without its private key.
type Key struct {
	PublicKey     string
	Version       string // changes with the private key
	Test          bool
	CreatedAt     time.Time // zero if it is not known
	Active        bool      // false: the business's account is inactive and the key does not work
	PreviousUntil time.Time // when the previous private key stops working; zero if there is none
	Limit         int       // requests per minute; 0: the default
	Name          string    // may be empty
	ExpiresAt     time.Time // zero if the key does not expire
	Resources     []string  // that the key may call; nil: all of the unnamed API
	Write         bool      // the key may change data
}

// IssuedKey is a key with its private key, which is shown once.
type IssuedKey struct {
	Key
	PrivateKey PrivateKey
}

// PrivateKey is a private key that prints and logs as "[redacted]".
type PrivateKey string

// Reveal returns the private key.
func (k PrivateKey) Reveal() string { return string(k) }

// Format writes "[redacted]" for every verb.
func (PrivateKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[redacted]") }

// MarshalText returns "[redacted]".
func (PrivateKey) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// KeepGrace instead of a grace period replaces only the newest private key. The previous one keeps working as long as it would have.
const KeepGrace time.Duration = -1

// graces returns the choices of the form that rotates a key.
func graces() map[string]time.Duration {
	return map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "168h": 7 * 24 * time.Hour, "0": 0, "keep": KeepGrace}
}

// keysView is the list of keys.
type keysView struct {
	Token   string
	Keys    []Key
	Now     time.Time
	Problem string
	Testing bool // the new key's kind, as submitted
}

// keyView is the page with the form that rotates or revokes a key.
type keyView struct {
	Key
	Token string
	Now   time.Time
}

// newKeyView is the page that shows a new private key, once.
type newKeyView struct {
	IssuedKey
	Rotated, Kept bool
}

func (p *Pages) showKeys(w http.ResponseWriter, r *http.Request, s *session) error {
	q := r.URL.Query()
	switch {
	case q.Has("rotate"):
		return p.renderKey(w, r, s, "rotate-key", "Rotate a key", q.Get("rotate"))
	case q.Has("revoke"):
		return p.renderKey(w, r, s, "revoke-key", "Revoke a key", q.Get("revoke"))
	default:
		return p.renderKeys(w, r, http.StatusOK, s, keysView{})
	}
}

func (p *Pages) renderKeys(w http.ResponseWriter, r *http.Request, status int, s *session, v keysView) (err error) {
	if v.Keys, err = p.o.Keys.List(r.Context(), s.account.BusinessID); err != nil {
		return unavailable(err)
	}
	for i := range v.Keys {
		v.Keys[i] = s.local(v.Keys[i])
	}
	v.Now, v.Token = p.o.Now(), s.token(formKeys)
	p.render(w, r, status, "keys", p.settings(w, r, s, titled("API and integrations", v.Problem), KeysPath), v)
	return nil
}

// renderKey shows the form that rotates or revokes a key.
func (p *Pages) renderKey(w http.ResponseWriter, r *http.Request, s *session, view, title, publicKey string) error {
	key, err := p.o.Keys.Get(r.Context(), s.account.BusinessID, publicKey)
	switch {
	case errors.Is(err, ErrNoKey):
		return noKey()
	case err != nil:
		return unavailable(err)
	}
	p.render(w, r, http.StatusOK, view, p.settings(w, r, s, title, KeysPath), keyView{s.local(key), s.token(formKeys), p.o.Now()})
	return nil
}

func noKey() *pageError {
	return newError(http.StatusNotFound, "Key not found", "It may have been revoked in the meantime.", nil).withLink(KeysPath, "See your keys")
}

// changeTimeout is the timeout of a change of a key.
const changeTimeout = 20 * time.Second

func (p *Pages) changeKeys(w http.ResponseWriter, r *http.Request, s *session) error {
	entry := audit.Entry{Target: cleantext.Line(r.PostForm.Get("key"), 2*maxLabel)}
	var change func(context.Context, http.ResponseWriter, *http.Request, *session, audit.Entry) error
	switch r.PostForm.Get("action") {
	case "issue":
		entry.Action, entry.Target, change = audit.KeyIssued, "", p.issueKey
	case "rotate":
		entry.Action, change = audit.KeyRotated, p.rotateKey
	case "revoke":
		entry.Action, change = audit.KeyRevoked, p.revokeKey
	default:
		return badRequest("The action is missing from the form. Go back and choose again.", nil)
	}
	if err := ownerOnly(s.account, "manage keys"); err != nil {
		entry.Outcome, entry.Detail = audit.OutcomeDenied, "Not an owner"
		_ = p.o.Audit.Record(r.Context(), p.entryOf(r.Context(), s.account, entry)) // logs its own failures
		return err
	}
	if err := s.check(r, formKeys, KeysPath); err != nil {
		return err
	}
	// A change must not be interrupted when the browser disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
	defer cancel()
	return change(ctx, w, r, s, entry)
}

// beginKey begins a change that creates a private key. Its error page says if there were too many.
func (p *Pages) beginKey(ctx context.Context, s *session, entry audit.Entry) (*audit.Change, error) {
	_, wait, err := p.store.allow(ctx, "keys:"+s.account.ID, changesPerAccount, changesWindow)
	if err != nil {
		return nil, unavailable(err)
	}
	if wait > 0 {
		return nil, &pageError{
			Status: http.StatusTooManyRequests, title: "Too many changes", retry: wait, Link: KeysPath, Label: "See your keys",
			Detail: "You have changed keys too often in the past hour. Please try again " + fromNow(wait) + ".",
		}
	}
	return p.beginChange(ctx, s.account, entry)
}

func (p *Pages) issueKey(ctx context.Context, w http.ResponseWriter, r *http.Request, s *session, entry audit.Entry) error {
	change, err := p.beginKey(ctx, s, entry)
	if err != nil {
		return err
	}
	test := r.PostForm.Get("kind") == "test"
	issued, err := p.o.Keys.Issue(ctx, s.account.Business, s.account.ID, digest(r.PostForm.Get(tokenField)), test)
	change.Target = issued.PublicKey
	if errors.Is(err, ErrTooManyKeys) {
		change.Detail = "The business has reached the maximum number of keys"
		change.Resolve(ctx, audit.OutcomeDenied)
		fail(r, codeConflict, err)
		return p.renderKeys(w, r, http.StatusConflict, s, keysView{
			Problem: "Your business has reached the maximum number of keys. Revoke one that you no longer use first.", Testing: test,
		})
	}
	if err != nil {
		return notChanged(ctx, change, err,
			"This form was already submitted and issued the key "+issued.PublicKey+". A private key is shown only once. "+
				"If you did not see it, rotate the key to get a new one.",
			"Check your keys in a moment. If "+issued.PublicKey+" is listed, it was issued; rotate it to get a private key. "+
				"Otherwise, issue another key.")
	}
	change.Resolve(ctx, audit.OutcomeOK)
	p.render(w, r, http.StatusOK, "new-key", p.settings(w, r, s, "Your new key", KeysPath), newKeyView{IssuedKey: issued})
	return nil
}

func (p *Pages) rotateKey(ctx context.Context, w http.ResponseWriter, r *http.Request, s *session, entry audit.Entry) error {
	grace, ok := graces()[r.PostForm.Get("grace")]
	version := r.PostForm.Get("version")
	if !ok || version == "" {
		return badRequest("The form does not say how long the old private key keeps working. Go back and choose again.", nil)
	}
	change, err := p.beginKey(ctx, s, entry)
	if err != nil {
		return err
	}
	issued, err := p.o.Keys.Rotate(ctx, s.account.BusinessID, r.PostForm.Get("key"), version, grace)
	if err != nil {
		return notChanged(ctx, change, err,
			"The key has been rotated since this form was opened, or the private key before the newest one has stopped working. "+
				"If you did not see the newest one, rotate the key again. If the one before still works, replace only the newest one.",
			"The old private key may have stopped working, and the new one cannot be shown. Rotate the key again in a moment.")
	}
	issued.Key = s.local(issued.Key)
	change.Detail = "The old private key stopped working immediately"
	if grace == KeepGrace {
		change.Detail = "The newest private key was replaced and stopped working immediately; the one before works until " +
			dateTime(issued.PreviousUntil)
	} else if !issued.PreviousUntil.IsZero() {
		change.Detail = "The old private key works until " + dateTime(issued.PreviousUntil)
	}
	change.Resolve(ctx, audit.OutcomeOK)
	p.render(w, r, http.StatusOK, "new-key", p.settings(w, r, s, "Your new private key", KeysPath), newKeyView{issued, true, grace == KeepGrace})
	return nil
}

func (p *Pages) revokeKey(ctx context.Context, w http.ResponseWriter, r *http.Request, s *session, entry audit.Entry) error {
	change, err := p.beginChange(ctx, s.account, entry)
	if err != nil {
		return err
	}
	err = p.o.Keys.Revoke(ctx, s.account.BusinessID, r.PostForm.Get("key"))
	switch {
	case errors.Is(err, ErrAlreadyDone): // also after a double click
		change.Drop(ctx)
		return p.done(w, noticeKeyRevoked, KeysPath)
	case errors.Is(err, ErrNoKey):
		change.Drop(ctx)
		return p.done(w, noticeNoKey, KeysPath)
	case err != nil:
		return notChanged(ctx, change, err, "", "Revoke the key again in a moment. Until then, it may still be accepted.")
	}
	change.Resolve(ctx, audit.OutcomeOK)
	return p.done(w, noticeKeyRevoked, KeysPath)
}

// notChanged resolves the audit entry of a change that failed, and returns the error page. already is its text if the change was
// made before, and toDo tells the user what to do if the outcome is unknown.
func notChanged(ctx context.Context, change *audit.Change, err error, already, toDo string) *pageError {
	switch {
	case errors.Is(err, ErrNoKey):
		change.Drop(ctx)
		return noKey()
	case errors.Is(err, ErrAlreadyDone):
		change.Drop(ctx)
		return conflict("Already done", already).withLink(KeysPath, "See your keys")
	case errors.Is(err, ErrInactive):
		change.Detail = "The keys of the business are inactive"
		change.Resolve(ctx, audit.OutcomeDenied)
		return conflict("Account not active", "While your business's account is not active, keys cannot be issued or revoked.").withLink(KeysPath, "See your keys")
	case errors.Is(err, ErrOutcomeUnknown):
		change.Resolve(ctx, audit.OutcomeUnknown)
		return outcomeUnknown(toDo, err).withLink(KeysPath, "See your keys")
	}
	change.Resolve(ctx, audit.OutcomeFailed)
	return unavailable(err)
}

// dateTime formats a date and time with its zone.
func dateTime(t time.Time) string { return t.Format("2 January 2006, 15:04 MST") }

// local returns a key with its times in the business's time zone.
func (s *session) local(k Key) Key {
	at := s.account.Location()
	k.CreatedAt, k.PreviousUntil, k.ExpiresAt = k.CreatedAt.In(at), k.PreviousUntil.In(at), k.ExpiresAt.In(at)
	return k
}
