package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// opened opens a service that is filled at the given time.
func opened(t *testing.T, now time.Time) *Service {
	t.Helper()
	s, err := Open(t.Context(), Memory, Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestAFileSurvivesARestartAndIsNotFilledAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "odd name #1 50%?.db")
	interrupted, err := openStore(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, interrupted.close(), "it has the schema, but no records")

	s, err := Open(t.Context(), path, Options{Now: new(clock).now})
	require.NoError(t, err)
	require.Equal(t, get(t, shared, owner().BusinessID, "invoices"), get(t, s, owner().BusinessID, "invoices"), "the next start completes it")
	execute(t, s, "UPDATE invoices SET title = 'changed'")
	before := get(t, s, owner().BusinessID, "invoices")
	require.NoError(t, s.Close())
	require.NoFileExists(t, path+"-wal", "the log is folded into the file")

	s, err = Open(t.Context(), path, Options{Now: func() time.Time { return testNow.AddDate(1, 0, 0) }})
	require.NoError(t, err)
	assert.Equal(t, before, get(t, s, owner().BusinessID, "invoices"))
	require.NoError(t, s.Close())
}

func TestReadersSeeWholePagesWhileAWriterWrites(t *testing.T) {
	t.Parallel()
	for _, path := range []string{Memory, ""} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := prepared(t, path, Options{})
			b := active()[0].ID
			n := func() int {
				body := get(t, s, b, "contacts?per_page=100")
				fresh := 0
				for _, c := range records(t, body, "contacts") {
					if c["first_name"] == "Fresh" {
						fresh++
					}
				}
				total := int(record(t, body, "pagination")["total_items"].(float64))
				require.Equal(t, 0, fresh%2, "a reader saw half a transaction")
				require.Equal(t, fresh, total-count(t, "contacts", b, "true"), "page and count are of one moment")
				return fresh
			}
			const pairs = 25
			concurrently(2, func(i int) *httptest.ResponseRecorder {
				for last := 0; i == 0 && last < 2*pairs; {
					last = n()
				}
				for j := 0; i == 1 && j < pairs; j++ {
					at := instant(testNow.Add(time.Duration(j) * time.Minute))
					execute(t, s, `INSERT INTO contacts (business_id, first_name, contact_type, contact_status, date_created, date_modified)
						VALUES (?1, 'Fresh', 'lead', 'active', ?2, ?2), (?1, 'Fresh', 'lead', 'active', ?2, ?2)`, b, at)
				}
				return nil
			})
		})
	}
}

func TestAWriteThatFailsOrIsAbandonedLeavesNothing(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{})
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
			return nil
		}), want)
		assert.NotEmpty(t, texts(t, s, "SELECT id FROM events"))
	}
	require.ErrorContains(t, s.store.write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE contacts SET business_id = 'nobody'")
		return err
	}), "FOREIGN KEY")
	_, err := s.store.readers.ExecContext(t.Context(), "DELETE FROM events")
	require.ErrorContains(t, err, "readonly")
}

func TestClosingWaitsForReadsThatHaveBegun(t *testing.T) {
	t.Parallel()
	for _, path := range []string{Memory, ""} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := prepared(t, path, Options{})
			begun, closing := make(chan struct{}), make(chan error, 1)
			go func() {
				<-begun
				closing <- s.Close()
			}()
			require.NoError(t, s.store.read(t.Context(), func(tx *sql.Tx) error {
				close(begun)
				require.Eventually(t, func() bool { // until Close has begun
					free := s.store.gate.TryRLock()
					if free {
						s.store.gate.RUnlock()
					}
					return !free
				}, patience, time.Millisecond)
				var n int
				return tx.QueryRowContext(t.Context(), "SELECT count(*) FROM jobs").Scan(&n)
			}))
			require.NoError(t, <-closing)
			require.ErrorIs(t, s.store.read(t.Context(), nil), errClosed)
		})
	}
}

func TestListsAreReadFromTheirIndexes(t *testing.T) {
	t.Parallel()
	for _, r := range resources() {
		for _, column := range append([]string{"business_id"}, r.columns...) {
			var steps []string
			require.NoError(t, shared.store.read(t.Context(), func(tx *sql.Tx) (err error) {
				var ignored int
				steps, err = rowsOf(t.Context(), tx, func(step *string) []any { return []any{&ignored, &ignored, &ignored, step} },
					"EXPLAIN QUERY PLAN "+r.query("json", ofBusiness("b").and(column+" = 'x'")), "b", 25, 0)
				return err
			}))
			plan := strings.Join(steps, "\n")
			assert.Contains(t, plan, "USING INDEX", "%s by %s", r.name, column)
			assert.NotContains(t, plan, "TEMP B-TREE", "%s by %s is sorted", r.name, column)
		}
	}
}

func TestForeignDatabasesAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "This is not a database, whatever its name may be.\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte(text), 0o600))
	for name, statement := range map[string]string{
		"foreign.db": "CREATE TABLE accounts (id INTEGER)",
		"newer.db":   fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 1000", applicationID),
	} {
		db, err := sql.Open("sqlite", filepath.Join(dir, name))
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, errors.Join(err, db.Close()))
	}
	for name, want := range map[string]string{
		"foreign.db": "belongs to another program", "newer.db": "another version", "notes.txt": "not a database",
		"missing/demo.db": "unable to open", "": "path is empty",
	} {
		path := name
		if name != "" {
			path = filepath.Join(dir, name)
		}
		_, err := Open(t.Context(), path, Options{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
	}
	content, err := os.ReadFile(filepath.Join(dir, "notes.txt"))
	require.NoError(t, err)
	assert.Equal(t, text, string(content))
}
