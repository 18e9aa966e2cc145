package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFileSurvivesARestartAndIsNotFilledAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "odd name #1 50%?.db")
	interrupted, err := openStore(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, interrupted.close(), "the schema is there, the records are not")

	first, err := Open(t.Context(), path, Options{Now: atTestNow})
	require.NoError(t, err)
	before := everything(t, first, active()[0].ID, "invoices")
	require.Equal(t, everything(t, shared, active()[0].ID, "invoices"), before, "the next start completes it")
	require.NoError(t, first.store.write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE invoices SET title = 'changed by hand' WHERE id = ?", before[0]["id"])
		return err
	}))
	require.NoError(t, first.Close())
	require.FileExists(t, path)
	require.NoFileExists(t, path+"-wal", "the log has been folded into the file")

	second, err := Open(t.Context(), path, Options{Now: func() time.Time { return testNow.AddDate(1, 0, 0) }})
	require.NoError(t, err)
	after := everything(t, second, active()[0].ID, "invoices")
	before[0]["title"] = "changed by hand"
	require.Equal(t, before, after)
	stored, err := second.Businesses(t.Context())
	require.NoError(t, err)
	require.Equal(t, Businesses(), stored)
	require.NoError(t, second.Close())
}

func TestTwoServicesInMemoryShareNothing(t *testing.T) {
	t.Parallel()
	one, two := small(t, Memory, Options{}), small(t, Memory, Options{})
	before := everything(t, two, inactive().ID, "jobs")
	require.NoError(t, one.store.write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE jobs SET name = 'mine'")
		return err
	}))
	require.Equal(t, "mine", everything(t, one, inactive().ID, "jobs")[0]["name"])
	require.Equal(t, before, everything(t, two, inactive().ID, "jobs"))
}

func TestReadersSeeWholePagesWhileAWriterWrites(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"memory": Memory, "file": filepath.Join(t.TempDir(), "demo.db")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := small(t, path, Options{})
			b := inactive()
			start := total(t, get(t, s, b.ID, "/api/v1/contacts"))

			// Always two at a time: an odd count would be half a transaction.
			const pairs = 25
			var stopped atomic.Bool
			written := make(chan error, 1)
			go func() {
				defer stopped.Store(true)
				for i := range pairs {
					if err := addContacts(s, b.ID, 2, i); err != nil {
						written <- err
						return
					}
				}
				written <- nil
			}()
			for i := range 4 {
				t.Run(fmt.Sprint("reader ", i), func(t *testing.T) {
					t.Parallel()
					last := start
					for done := false; !done; {
						done = stopped.Load() // one more look after the last write
						body := get(t, s, b.ID, "/api/v1/contacts?per_page=100")
						n := total(t, body)
						require.GreaterOrEqual(t, n, last)
						require.Zero(t, (n-start)%2)
						fresh := 0
						for _, c := range records(t, body, "contacts") {
							if c["first_name"] == "Fresh" {
								fresh++
							}
						}
						require.Equal(t, n-start, fresh, "the page and the count are of one moment")
						last = n
					}
					require.Equal(t, start+2*pairs, last)
				})
			}
			t.Cleanup(func() { require.NoError(t, <-written) })
		})
	}
}

func addContacts(s *Service, businessID string, n, minute int) error {
	at := instant(testNow.Add(time.Duration(minute) * time.Minute))
	return s.store.write(context.Background(), func(tx *sql.Tx) error {
		for range n {
			if _, err := tx.Exec(`INSERT INTO contacts (business_id, first_name, contact_type, contact_status, date_created, date_modified)
				VALUES (?, 'Fresh', 'lead', 'active', ?, ?)`, businessID, at, at); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestAWriteThatFailsOrIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	s := small(t, Memory, Options{})
	before := everything(t, s, inactive().ID, "events")
	failed := errors.New("changed my mind")
	for _, want := range []error{failed, context.Canceled} {
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, s.store.write(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM events")
			require.NoError(t, err)
			cancel()
			if errors.Is(want, failed) {
				return failed
			}
			return nil // though nobody waits for it any more
		}), want)
		require.Equal(t, before, everything(t, s, inactive().ID, "events"))
	}
}

func TestClosingWaitsForReadsThatHaveBegun(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"memory": Memory, "file": filepath.Join(t.TempDir(), "demo.db")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := small(t, path, Options{})
			begun, closing := make(chan struct{}), make(chan error, 1)
			go func() {
				<-begun
				closing <- s.Close()
			}()
			err := s.store.read(t.Context(), func(tx *sql.Tx) error {
				close(begun)
				// A reader that tries waits or is turned away once closing has begun.
				require.Eventually(t, func() bool {
					free := s.store.gate.TryRLock()
					if free {
						s.store.gate.RUnlock()
					}
					return !free
				}, patience, time.Millisecond)
				var n int
				err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM jobs").Scan(&n)
				require.Positive(t, n)
				return err
			})
			require.NoError(t, err)
			require.NoError(t, <-closing)
			require.ErrorIs(t, s.store.read(t.Context(), nil), errClosed)
		})
	}
}

// A connection that is still at the end of a transaction when the others are closed
// keeps the log beside the file, and the file open.
func TestClosingWaitsForTransactionsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*store, context.Context, func(*sql.Tx) error) error{"read": (*store).read, "write": (*store).write} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				path := filepath.Join(t.TempDir(), "demo.db")
				st, err := openStore(t.Context(), path)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				_ = use(st, ctx, func(tx *sql.Tx) error {
					time.AfterFunc(time.Millisecond, cancel)
					var n int // in most cases it is cut off in the middle of this
					err := tx.QueryRowContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
						SELECT count(*) FROM n`).Scan(&n)
					<-ctx.Done()
					return err
				})
				require.NoError(t, st.close())
				require.NoFileExists(t, path+"-wal")
			}
		})
	}
}

func TestReadersCannotWrite(t *testing.T) {
	t.Parallel()
	_, err := shared.store.readers.ExecContext(t.Context(), "DELETE FROM jobs")
	require.ErrorContains(t, err, "readonly")
}

func TestForeignKeysAreEnforced(t *testing.T) {
	t.Parallel()
	s := small(t, Memory, Options{})
	err := addContacts(s, "00000000-0000-4000-8000-000000000000", 1, 0)
	require.ErrorContains(t, err, "FOREIGN KEY")
}

func TestAnAbandonedRequestStopsReading(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, shared.store.read(ctx, nil), context.Canceled)
	require.Len(t, records(t, get(t, shared, active()[0].ID, "/api/v1/jobs"), "jobs"), 25, "and does no harm to the next")
}

func TestListsAreReadFromTheirIndexes(t *testing.T) {
	t.Parallel()
	for table, queries := range map[string][]string{
		"contacts":  {"", "contact_status", "contact_type"},
		"equipment": {"", "status", "category"},
		"estimates": {"", "status", "payment_status"},
		"invoices":  {"", "status"},
		"jobs":      {"", "work_status"},
		"offerings": {"", "status"},
		"events":    {"", "status"},
	} {
		order := "created_at DESC, id DESC"
		switch table {
		case "contacts":
			order = "date_created DESC, id DESC"
		case "events":
			order = "published_at DESC, created_at DESC, id DESC"
		}
		for _, column := range queries {
			where := "business_id = 'b'"
			if column != "" {
				where += " AND " + column + " = 'x'"
			}
			plan := queryPlan(t, fmt.Sprintf("SELECT * FROM %s WHERE %s ORDER BY %s LIMIT 25", table, where, order))
			require.Contains(t, plan, "USING INDEX", "%s by %s", table, column)
			require.NotContains(t, plan, "TEMP B-TREE", "%s by %s is sorted", table, column)
		}
	}
}

func queryPlan(t *testing.T, query string) string {
	t.Helper()
	rows, err := shared.store.readers.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query)
	require.NoError(t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var step string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &step))
		plan.WriteString(step + "\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}

func TestForeignDatabasesAreLeftAlone(t *testing.T) {
	t.Parallel()
	execute := func(path, statement string) {
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}

	foreign := filepath.Join(t.TempDir(), "foreign.db")
	execute(foreign, "CREATE TABLE accounts (id INTEGER)")
	_, err := Open(t.Context(), foreign, Options{})
	require.ErrorIs(t, err, ErrForeignDatabase)
	require.ErrorContains(t, err, foreign)

	newer := filepath.Join(t.TempDir(), "newer.db")
	st, err := openStore(t.Context(), newer)
	require.NoError(t, err)
	require.NoError(t, st.close())
	execute(newer, "PRAGMA user_version = 1000")
	_, err = Open(t.Context(), newer, Options{})
	require.ErrorIs(t, err, ErrOtherSchema)

	text := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(text, []byte("This is not a database, whatever its name may be.\n"), 0o600))
	_, err = Open(t.Context(), text, Options{})
	require.ErrorContains(t, err, "not a database")
	content, err := os.ReadFile(text)
	require.NoError(t, err)
	require.Equal(t, "This is not a database, whatever its name may be.\n", string(content))
}

func TestOpenErrorsNameThePath(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "", Options{})
	require.ErrorContains(t, err, "path is empty")
	missing := filepath.Join(t.TempDir(), "missing", "demo.db")
	_, err = Open(t.Context(), missing, Options{})
	require.ErrorContains(t, err, missing)
	_, err = Open(t.Context(), t.TempDir(), Options{})
	require.Error(t, err)
}

func TestProcessesThatStartAtOnceFillAFileOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	var opened [3]*store
	var errs [3]error
	var group sync.WaitGroup
	for i := range opened {
		group.Go(func() {
			if opened[i], errs[i] = openStore(t.Context(), path); errs[i] == nil {
				errs[i] = fillSmall(t.Context(), opened[i])
			}
		})
	}
	group.Wait()
	for i, st := range opened {
		require.NoError(t, errs[i])
		require.Len(t, texts(t, st, "SELECT id FROM businesses"), 1)
		require.NoError(t, st.close())
	}
}
