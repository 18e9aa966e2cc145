package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite" // with the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Memory is the path of a database in memory.
const Memory = ":memory:"

// errClosed says that the store has been closed.
var errClosed = errors.New("the store is closed")

// errUnknownBusiness says that no business has the id that was asked for.
var errUnknownBusiness = errors.New("unknown business")

// busyTimeout is how long a connection waits for a lock. With a file (WAL) readers never wait; in memory they wait for
// the end of a write.
const busyTimeout = 5 * time.Second

// store holds the records. Reads run in snapshots on a pool of read-only connections; writes run one at a time on their
// own connection.
type store struct {
	writer  *sql.DB
	readers *sql.DB
	gate    sync.RWMutex // held by whoever uses the database, closed by close
	closed  bool

	businessFields []field[businessRow]
	oneBusiness    *sql.Stmt
	allBusinesses  *sql.Stmt

	contacts  *list[contact]
	equipment *list[equipment]
	estimates *list[estimate]
	invoices  *list[invoice]
	jobs      *list[job]
	offerings *list[offering]
	events    *list[event]
	sessions  *children[session]
	media     *children[medium]
}

// openStore opens or creates the database at path and migrates its schema.
func openStore(ctx context.Context, path string) (_ *store, err error) {
	name, journal, err := databaseName(path)
	if err != nil {
		return nil, err
	}
	s := &store{businessFields: fieldsOf[businessRow]()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening database %s: %w", path, err), s.close())
		}
	}()

	common := url.Values{"_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)}, "_foreign_keys": {"on"}}
	if strings.HasPrefix(name, memoryName) {
		common.Set("vfs", "memdb")
	}
	if s.writer, err = openPool(name, common, url.Values{
		"_txlock": {"immediate"}, "_journal_mode": {journal}, "_synchronous": {"NORMAL"},
	}, 1); err != nil {
		return nil, err
	}
	err = whileBusy(ctx, func() error { return s.writer.PingContext(ctx) })
	if err != nil {
		return nil, err
	}
	err = migrate(ctx, s.writer)
	if err != nil {
		return nil, err
	}
	// More readers than processors only move the queue into the scheduler, but a slow one must not stop the rest.
	if s.readers, err = openPool(name, common, url.Values{
		"_query_only": {"on"},
	}, max(4, runtime.GOMAXPROCS(0))); err != nil {
		return nil, err
	}
	err = s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// memoryName is the prefix of in-memory database names. The rest is random: the connections of a store share one
// database, two stores do not.
const memoryName = "file:/gatehouse-demo-"

// databaseName returns the URI of a database and its journal mode.
func databaseName(path string) (name, journal string, err error) {
	switch path {
	case "":
		return "", "", errors.New("opening database: the path is empty")
	case Memory:
		return memoryName + rand.Text(), "MEMORY", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", "", fmt.Errorf("opening database %s: %w", path, err)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), "WAL", nil
}

func openPool(name string, common, own url.Values, size int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", name+"?"+common.Encode()+"&"+own.Encode())
	if err != nil {
		return nil, err
	}
	// Idle connections stay open: they hold the prepared statements, and a database in memory ends with its last
	// connection.
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// whileBusy retries while the database is locked, up to the busy timeout. SQLite does not wait by itself if two
// processes switch the same new file to WAL at once.
func whileBusy(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		var locked *sqlite.Error
		if !errors.As(err, &locked) || locked.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func (s *store) prepare(ctx context.Context) error {
	p := &preparer{ctx: ctx, db: s.readers}
	business := "SELECT " + columns(s.businessFields) + " FROM businesses "
	s.oneBusiness = p.prepare(business + "WHERE id = ?")
	s.allBusinesses = p.prepare(business + "ORDER BY created_at, id")
	const newest = "created_at DESC, id DESC"
	s.contacts = prepareList[contact](p, "contacts", "date_created DESC, id DESC", "contact_status", "contact_type")
	s.equipment = prepareList[equipment](p, "equipment", newest, "status", "category")
	s.estimates = prepareList[estimate](p, "estimates", newest, "status", "payment_status")
	s.invoices = prepareList[invoice](p, "invoices", newest, "status")
	s.jobs = prepareList[job](p, "jobs", newest, "work_status")
	s.offerings = prepareList[offering](p, "offerings", newest, "status")
	// Unpublished events come last: SQLite sorts NULL below everything.
	s.events = prepareList[event](p, "events", "published_at DESC, "+newest, "status")
	s.sessions = prepareChildren[session](p, "event_sessions", "event_id")
	s.media = prepareChildren[medium](p, "event_media", "event_id")
	return p.err
}

// close waits for current users and rejects later ones. The writer closes last, which folds the write-ahead log into
// the file.
func (s *store) close() error {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, db := range []*sql.DB{s.readers, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the database: %w", err)
	}
	return nil
}

// use runs fn while the database cannot be closed, or returns errClosed. fn must not call use.
func (s *store) use(fn func() error) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return errClosed
	}
	return fn()
}

// ping checks that the database is readable.
func (s *store) ping(ctx context.Context) error {
	return s.use(func() error { return s.readers.PingContext(ctx) })
}

// read runs fn in a snapshot.
func (s *store) read(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.use(func() error { return transact(ctx, s.readers, &sql.TxOptions{ReadOnly: true}, fn) })
}

// write runs fn in a transaction that is committed if fn returns nil. Writes wait for each other.
func (s *store) write(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.use(func() error { return inTx(ctx, s.writer, fn) })
}

func inTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	return transact(ctx, db, nil, func(tx *sql.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err // nobody waits for it any more
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("committing: %w", err)
		}
		return nil
	})
}

// transact runs fn in a transaction that is rolled back unless fn commits it. ctx bounds the wait for a connection and
// the statements, but does not end the transaction: database/sql would do that in the background, where the connection
// can outlive the database.
func transact(ctx context.Context, db *sql.DB, o *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("waiting for a connection: %w", err)
	}
	defer conn.Close()
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), o)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	// fn's error already says why.
	defer func() { _ = tx.Rollback() }()
	return fn(tx)
}

// insert adds records to a table.
func insert[T any](ctx context.Context, tx *sql.Tx, table string, fields []field[T], records []T) error {
	stmt, err := tx.PrepareContext(ctx, insertSQL(table, fields))
	if err != nil {
		return fmt.Errorf("preparing an insert into %s: %w", table, err)
	}
	defer stmt.Close()
	for i := range records {
		if _, err := stmt.ExecContext(ctx, values(fields, &records[i])...); err != nil {
			return fmt.Errorf("inserting into %s: %w", table, err)
		}
	}
	return nil
}

// business returns one business, or errUnknownBusiness.
func (s *store) business(ctx context.Context, id string) (*businessRow, error) {
	var row businessRow
	err := s.use(func() error {
		return s.oneBusiness.QueryRowContext(ctx, id).Scan(destinations(s.businessFields, &row)...)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, errUnknownBusiness
	case err != nil:
		return nil, fmt.Errorf("reading business: %w", err)
	}
	return &row, nil
}

// businesses returns all businesses, oldest first.
func (s *store) businesses(ctx context.Context) (all []businessRow, err error) {
	err = s.use(func() error {
		rows, err := s.allBusinesses.QueryContext(ctx)
		if err != nil {
			return err
		}
		all, err = collect(rows, s.businessFields, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading businesses: %w", err)
	}
	return all, nil
}

// eventPage returns at most count events with a status ("": any), the most recently published first, with their
// sessions and media.
func (s *store) eventPage(ctx context.Context, businessID, status string, count int64) ([]event, error) {
	var events []event
	err := s.read(ctx, func(tx *sql.Tx) (err error) {
		if events, _, err = s.events.page(ctx, tx, businessID, page{1, count}, status); err != nil || len(events) == 0 {
			return err
		}
		ids := make([]string, len(events))
		index := make(map[string]int, len(events))
		for i := range events {
			ids[i] = events[i].ID
			index[ids[i]] = i
		}
		sessions, err := s.sessions.of(ctx, tx, ids)
		if err != nil {
			return err
		}
		for i := range sessions {
			e := &events[index[sessions[i].EventID]]
			e.Schedule = append(e.Schedule, sessions[i])
		}
		media, err := s.media.of(ctx, tx, ids)
		if err != nil {
			return err
		}
		for i := range media {
			e := &events[index[media[i].EventID]]
			e.Media = append(e.Media, media[i])
		}
		return nil
	})
	return events, err
}
