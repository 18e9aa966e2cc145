package demo

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// list is a table or view that is read in parts: with pages by the public API, with cursors by /connect/v1.
type list struct {
	name   string   // the member of a response
	from   string   // a table or view with the column business_id
	record string   // the column with a record's JSON
	order  []string // the columns that it is ordered by; the last is the ID
	newest bool     // descending
}

// where is the condition of a query. It always has the business.
type where struct {
	conditions []string
	args       []any
}

func ofBusiness(id string) *where { return &where{[]string{"business_id = ?"}, []any{id}} }

func (w *where) and(condition string, args ...any) *where {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
	return w
}

func (w *where) String() string { return " WHERE " + strings.Join(w.conditions, " AND ") }

// listed is a record of a list, and the columns that say where it stands.
type listed struct {
	record  string
	key, id any
}

// query selects columns of the records that meet a condition, at most limit after the first offset.
func (l *list) query(columns string, w *where) string {
	direction := ""
	if l.newest {
		direction = " DESC"
	}
	return "SELECT " + columns + " FROM " + l.from + w.String() +
		" ORDER BY " + strings.Join(l.order, direction+", ") + direction + " LIMIT ? OFFSET ?"
}

// read returns the records that meet a condition, at most limit.
func (l *list) read(ctx context.Context, tx *sql.Tx, w *where, limit int64) (_ []listed, err error) {
	return rowsOf(ctx, tx, func(r *listed) []any { return []any{&r.record, &r.key, &r.id} },
		l.query(l.record+", "+l.order[0]+", "+l.order[len(l.order)-1], w), append(w.args, limit, 0)...)
}

// page returns the records of a page as a JSON array, and the number of all records that meet the condition, of one moment.
// It fails for a business that does not exist.
func (l *list) page(ctx context.Context, db *sql.DB, businessID string, w *where, limit, offset int64) (records string, total int64, err error) {
	var known bool
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM businesses WHERE id = ?), (SELECT count(*) FROM "+l.from+w.String()+
		"), (SELECT '[' || coalesce(group_concat("+l.record+"), '') || ']' FROM ("+l.query(l.record, w)+"))",
		slices.Concat([]any{businessID}, w.args, w.args, []any{limit, offset})...).Scan(&known, &total, &records)
	if err == nil && !known {
		err = errUnknownBusiness
	}
	return records, total, err
}

// rowsOf reads all rows of a query. dest gives the destinations for one.
func rowsOf[T any](ctx context.Context, tx *sql.Tx, dest func(*T) []any, query string, args ...any) (all []T, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("reading rows: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var row T
		if err := rows.Scan(dest(&row)...); err != nil {
			return nil, fmt.Errorf("reading rows: %w", err)
		}
		all = append(all, row)
	}
	return all, rows.Err()
}
