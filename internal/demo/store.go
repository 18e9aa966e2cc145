package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	_ "embed" // for the schema
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
	"golang.org/x/text/unicode/norm"
	"modernc.org/sqlite" // with the driver "sqlite"
)

// Memory is the path of a database in memory.
const Memory = ":memory:"

var (
	errClosed          = errors.New("the store is closed")
	errUnknownBusiness = errors.New("unknown business")
)

const (
	applicationID = 0x47744873 // marks our databases in SQLite's file header ("GtHs")
	schemaVersion = 5          // is incremented with every change of schema.sql

	// busyTimeout is how long a connection waits for a lock. With a file (WAL) readers never wait; in memory they wait
	// for the end of a write.
	busyTimeout = 5 * time.Second

	// memoryName is the prefix of in-memory database names. The rest is random: the connections of a store share one
	// database, two stores do not.
	memoryName = "file:/gatehouse-demo-"
)

//go:embed schema.sql
var schemaSQL string

// The functions of Go that SQL has too. NULL stays NULL.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction("fold", 1, ofNotNull(fold))
	sqlite.MustRegisterDeterministicScalarFunction("folded_key", 1, ofNotNull(foldedKey))
	sqlite.MustRegisterScalarFunction("hash_password", 1, ofNotNull(hashPassword))
	sqlite.MustRegisterDeterministicScalarFunction("decimal", 1, ofNotNull(decimal))
}

func ofNotNull[T any](f func(T) string) func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
	return func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		if v, ok := args[0].(T); ok {
			return f(v), nil
		}
		return args[0], nil
	}
}

// decimal formats hundredths as a decimal number.
func decimal(n int64) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }

// fold removes differences of case and accents.
func fold(s string) string {
	plain, _, err := transform.String(transform.Chain(
		norm.NFKD, runes.Remove(runes.In(unicode.Mn)), cases.Fold(), norm.NFC), s)
	if err != nil { // never for texts
		return s
	}
	return strings.NewReplacer("ł", "l", "ø", "o", "đ", "d", "æ", "ae", "œ", "oe").Replace(plain)
}

// foldedKey returns the form in which names are compared.
func foldedKey(s string) string { return strings.Join(strings.Fields(fold(s)), " ") }

// instant formats t as the database stores times: RFC 3339 in UTC to the second, which sorts by time.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// store holds the records. Reads run in snapshots on read-only connections; writes run one at a time on their own.
type store struct {
	writer  *sql.DB
	readers *sql.DB
	gate    sync.RWMutex // held by whoever uses the database, closed by close
	closed  bool
}

// openStore opens the database at path, or creates it with its schema.
func openStore(ctx context.Context, path string) (_ *store, err error) {
	if path == "" {
		return nil, errors.New("opening database: the path is empty")
	}
	s := new(store)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening database %s: %w", path, err), s.close())
		}
	}()
	options := url.Values{"_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)}, "_foreign_keys": {"on"}}
	var name, journal string
	if path == Memory {
		name, journal = memoryName+rand.Text(), "MEMORY"
		options.Set("vfs", "memdb")
	} else {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		name, journal = (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), "WAL"
	}
	if s.writer, err = openPool(name, 1, options, url.Values{
		"_txlock": {"immediate"}, "_journal_mode": {journal}, "_synchronous": {"NORMAL"},
	}); err != nil {
		return nil, err
	}
	if err := s.write(ctx, func(tx *sql.Tx) error { return createSchema(ctx, tx) }); err != nil {
		return nil, err
	}
	// More readers than processors only move the queue into the scheduler, but a slow one must not stop the rest.
	s.readers, err = openPool(name, max(4, runtime.GOMAXPROCS(0)), options, url.Values{"_query_only": {"on"}})
	return s, err
}

func openPool(name string, size int, common, own url.Values) (*sql.DB, error) {
	db, err := sql.Open("sqlite", name+"?"+common.Encode()+"&"+own.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size) // a database in memory ends with its last connection
	return db, nil
}

// createSchema creates the tables of an empty database and rejects databases that are not ours.
func createSchema(ctx context.Context, tx *sql.Tx) error {
	var id, version, tables int
	if err := tx.QueryRowContext(ctx, "SELECT (SELECT application_id FROM pragma_application_id),"+
		" (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)").Scan(&id, &version, &tables); err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	switch {
	case id == applicationID && version == schemaVersion:
		return nil
	case id == applicationID:
		return fmt.Errorf("it has the schema of another version of this program: %d instead of %d", version, schemaVersion)
	case id != 0 || version != 0 || tables != 0:
		return errors.New("it belongs to another program")
	}
	_, err := tx.ExecContext(ctx, schemaSQL+fmt.Sprintf("; PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, schemaVersion))
	if err != nil {
		err = fmt.Errorf("creating the schema: %w", err)
	}
	return err
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
	for _, db := range []*sql.DB{s.readers, s.writer} {
		if db == nil {
			continue
		}
		if err := db.Close(); err != nil {
			return fmt.Errorf("closing the database: %w", err)
		}
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

// read runs fn in a snapshot.
func (s *store) read(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.use(func() error { return transact(ctx, s.readers, &sql.TxOptions{ReadOnly: true}, fn) })
}

// write runs fn in a transaction that is committed if fn returns nil. Writes wait for each other.
func (s *store) write(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.use(func() error {
		return transact(ctx, s.writer, nil, func(tx *sql.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err // nobody waits for it any more
			}
			return tx.Commit()
		})
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
	defer func() { _ = tx.Rollback() }() // fn's error already says why
	return fn(tx)
}
