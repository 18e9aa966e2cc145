package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Options are a Service's choices. The zero value is usable.
type Options struct {
	// Now is the clock. A new database's records are made up around the time that
	// it gives first: the same time, the same records. Default: time.Now.
	Now func() time.Time

	// Authorize is asked about every request to the API before anything else
	// is done with it, but not about /healthz. An error refuses the request with
	// 401; it is logged and not shown to the caller. It has to hold the
	// X-Business-Id header against what it verifies. Default: every request is
	// let in, which is right only where nothing but the gateway can connect.
	Authorize func(*http.Request) error

	// Pace is how long an automation takes at least for each of its items, so that
	// its progress can be watched; at most 5 s. Default: none, as fast as it goes.
	Pace time.Duration

	// Logger receives refusals and faults. Default: none are logged.
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

const maxPace = 5 * time.Second

// Open opens the service on the SQLite database file at path, creating it in an
// existing directory, or on a database of its own in memory when path is Memory.
// A database without businesses is filled with the demo's. It fails with
// ErrForeignDatabase or ErrNewerSchema for a file that it must not touch.
// Close the service when it is no longer needed.
func Open(ctx context.Context, path string, o Options) (*Service, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	st, err := openStore(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := seed(ctx, st, o.Now(), hashPassword, seedFolders()...); err != nil {
		return nil, errors.Join(fmt.Errorf("filling database %s: %w", path, err), st.close())
	}
	s := newService(st, o)
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
	s.runner = newRunner(st, s.now, min(o.Pace, maxPace), s.log)
	return s
}

// Businesses gives the accounts in the database, oldest first, those of a new
// database in the order of the function Businesses.
func (s *Service) Businesses(ctx context.Context) ([]Business, error) {
	rows, err := s.store.businesses(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Business, len(rows))
	for i := range rows {
		all[i] = rows[i].business()
	}
	return all, nil
}

// Close ends the service: requests that have begun are finished, later ones are
// answered with 503, and an automation that is running ends after the item that
// it is at and is kept as failed, with what it did. A service in memory is gone
// with it.
func (s *Service) Close() error {
	s.runner.end()
	return s.store.close()
}
