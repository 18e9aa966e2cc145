package demo

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// ErrNewerSchema is returned for a database that was written by a later version of this service.
var ErrNewerSchema = errors.New("the database's schema is newer than this program")

// ErrForeignDatabase is returned for a database of another program.
var ErrForeignDatabase = errors.New("the database belongs to another program")

// applicationID marks our databases in SQLite's file header ("GtHs").
const applicationID = 0x47744873

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrate applies the files of migrations/ in the order of their names, each in its own transaction. PRAGMA
// user_version counts them. A released migration is never changed.
func migrate(ctx context.Context, db *sql.DB) error {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return fmt.Errorf("listing migrations: %w", err)
	}
	if err := adopt(ctx, db, len(names)); err != nil {
		return err
	}
	for i, name := range names {
		script, err := migrationFiles.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if err := applyMigration(ctx, db, i+1, string(script)); err != nil {
			return fmt.Errorf("applying %s: %w", name, err)
		}
	}
	return nil
}

// adopt rejects foreign and newer databases before anything is written.
func adopt(ctx context.Context, db *sql.DB, newest int) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		var id, version, tables int
		if err := errors.Join(
			tx.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id),
			tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version),
			tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables),
		); err != nil {
			return fmt.Errorf("reading the schema's version: %w", err)
		}
		switch {
		case id == applicationID && version > newest:
			return fmt.Errorf("%w: version %d, known up to %d", ErrNewerSchema, version, newest)
		case id == applicationID:
			return nil
		case id != 0 || version != 0 || tables != 0:
			return ErrForeignDatabase
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID))
		if err != nil {
			return fmt.Errorf("marking the database: %w", err)
		}
		return nil
	})
}

func applyMigration(ctx context.Context, db *sql.DB, version int, script string) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		// Read again under the write lock: another process may have applied it.
		var current int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&current); err != nil {
			return fmt.Errorf("reading the schema's version: %w", err)
		}
		if current >= version {
			return nil
		}
		if _, err := tx.ExecContext(ctx, script); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
}
