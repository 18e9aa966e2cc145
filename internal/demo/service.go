// Package demo is a small data service such as a platform team would run behind the gateway: business records in SQLite,
// served over HTTP as docs/data-services.md describes.
//
//   - GET and HEAD of /api/v1/{business,contacts,equipment,estimates,invoices,jobs,offerings,events} serve the public API,
//     and /healthz says whether the database is readable. The X-Business-Id header, which the gateway sets, selects the
//     business. The service trusts its network for that unless Options.Authorize verifies the gateway's assertion.
//     Records also have fields that the contract does not define (business_id; an event's status, published_at and
//     created_at), which the gateway checks and strips.
//   - /connect/v1 serves reads and writes on behalf of an account. Responses to writes are stored under their idempotency
//     key. Automations run in the background. Their messages end in the table outbox: the service sends nothing.
//
// A new database is filled with the invented records of seed/. The passwords of its accounts are public: put no real
// records beside them. A database that already has businesses keeps its records.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Options configure a Service. The zero value is usable.
type Options struct {
	// Now is the clock. The times of a new database's records are relative to it. Default: time.Now.
	Now func() time.Time
	// Authorize is called for every request except /healthz; if it fails, the request is answered with 401. It must compare
	// X-Business-Id with what it verifies. Default: all are accepted, which is safe only if nothing but the gateway connects.
	Authorize func(*http.Request) error
	// Pace is the minimum time that an automation takes for each item, so that people can watch it. Default: 0.
	Pace time.Duration
	// Logger receives rejected requests and errors. Default: no logs.
	Logger *slog.Logger
}

// Service is the demo data service.
type Service struct {
	store     *store
	authorize func(*http.Request) error
	now       func() time.Time
	runner    *runner
	passwords *passwords
	log       *slog.Logger
}

// The two states of a business account.
const (
	AccountActive   = "active"
	AccountInactive = "inactive"
)

// Business is a customer of the platform. Keys, accounts and records belong to one.
type Business struct {
	ID            string `json:"id"` // UUID
	Name          string `json:"name"`
	Slug          string `json:"slug"`           // unique, lower-case words joined by dashes
	Email         string `json:"email"`          // empty: none
	Phone         string `json:"phone"`          // E.164; empty: none
	WebsiteURL    string `json:"website_url"`    // empty: none
	TimeZone      string `json:"time_zone"`      // IANA name
	AccountStatus string `json:"account_status"` // AccountActive or AccountInactive
}

// Open opens the SQLite database at path, or a private one in memory if path is Memory. It creates the file, but not its
// directory, and fills a database without businesses. It leaves a file of another program or version alone, and fails. Only
// one process at a time may use a file.
func Open(ctx context.Context, path string, o Options) (*Service, error) {
	st, err := openStore(ctx, path)
	if err != nil {
		return nil, err
	}
	s := newService(st, o)
	if err := seed(ctx, st, s.now(), seedFolders()...); err != nil {
		return nil, errors.Join(fmt.Errorf("filling database %s: %w", path, err), st.close())
	}
	s.runner.start() //nolint:contextcheck // it works for as long as the service is open
	return s, nil
}

func newService(st *store, o Options) *Service {
	s := &Service{store: st, authorize: o.Authorize, now: o.Now, passwords: newPasswords(), log: o.Logger}
	if s.authorize == nil {
		s.authorize = func(*http.Request) error { return nil }
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.runner = newRunner(st, s.now, o.Pace, s.log)
	return s
}

// Close finishes requests that have begun; later ones are answered with 503. A running automation ends after its
// current item and is marked as failed.
func (s *Service) Close() error {
	s.runner.end()
	return s.store.close()
}
