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

	// Authorize is called for every request except /healthz. If it fails, the request is answered with 401 and the
	// error is logged. It must compare the X-Business-Id header with what it verifies. Default: every request is
	// accepted, which is safe only if nothing but the gateway can connect.
	Authorize func(*http.Request) error

	// Pace is the minimum time that an automation takes for each item, so that its progress can be watched; at most 5
	// s. Default: 0.
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

const maxPace = 5 * time.Second

// Open opens the SQLite database at path, or a private one in memory if path is Memory. It creates the file, but not its
// directory, and fills a database without businesses. It fails with ErrForeignDatabase or ErrNewerSchema for files that
// it must not touch.
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

// Businesses returns the businesses in the database, oldest first.
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

// Close finishes requests that have begun; later ones are answered with 503. A running automation ends after its
// current item and is marked as failed.
func (s *Service) Close() error {
	s.runner.end()
	return s.store.close()
}
