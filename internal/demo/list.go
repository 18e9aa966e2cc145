package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// page selects a part of a list.
type page struct {
	Number int64 // from 1
	Size   int64 // from 1
}

func (p page) offset() int64 {
	if p.Number-1 > math.MaxInt64/p.Size {
		return math.MaxInt64
	}
	return (p.Number - 1) * p.Size
}

// list reads one table page by page. It has a pair of prepared statements for every set of filters, so that each can
// use its index.
type list[T any] struct {
	table  string
	fields []field[T]
	pages  []*sql.Stmt // bit i of the index is set when filter i is used
	totals []*sql.Stmt // likewise; gives whether the business exists, and the count
}

// preparer prepares statements until the first error.
type preparer struct {
	ctx context.Context
	db  *sql.DB
	err error
}

func (p *preparer) prepare(query string) *sql.Stmt {
	if p.err != nil {
		return nil
	}
	stmt, err := p.db.PrepareContext(p.ctx, query)
	if err != nil {
		p.err = fmt.Errorf("preparing %q: %w", query, err)
	}
	return stmt
}

// prepareList prepares the statements of a table that is filtered by columns.
func prepareList[T any](p *preparer, table, order string, filters ...string) *list[T] {
	l := &list[T]{table: table, fields: fieldsOf[T]()}
	for set := range 1 << len(filters) {
		conditions := []string{"business_id = ?"}
		for i, column := range filters {
			if set&(1<<i) != 0 {
				conditions = append(conditions, column+" = ?")
			}
		}
		from := " FROM " + table + " WHERE " + strings.Join(conditions, " AND ")
		// SQLite inspects the value of a bare parameter here and plans anew for every value, but not that of an expression.
		l.pages = append(l.pages, p.prepare("SELECT "+columns(l.fields)+from+" ORDER BY "+order+" LIMIT ? + 0 OFFSET ? + 0"))
		l.totals = append(l.totals, p.prepare("SELECT EXISTS (SELECT 1 FROM businesses WHERE id = ?), (SELECT count(*)"+from+")"))
	}
	return l
}

// page returns the records of a page and their number on all pages. Filters are in the order in which they were
// prepared; an empty value does not filter.
func (l *list[T]) page(ctx context.Context, tx *sql.Tx, businessID string, p page, filters ...string) ([]T, int64, error) {
	set := 0
	args := append(make([]any, 0, len(filters)+4), businessID, businessID)
	for i, value := range filters {
		if value != "" {
			set |= 1 << i
			args = append(args, value)
		}
	}

	var known bool
	var total int64
	if err := tx.StmtContext(ctx, l.totals[set]).QueryRowContext(ctx, args...).Scan(&known, &total); err != nil {
		return nil, 0, fmt.Errorf("counting %s: %w", l.table, err)
	}
	if !known {
		return nil, 0, errUnknownBusiness
	}
	offset := p.offset()
	if offset >= total {
		return nil, total, nil
	}

	args = append(args[1:], p.Size, offset)
	rows, err := tx.StmtContext(ctx, l.pages[set]).QueryContext(ctx, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", l.table, err)
	}
	records, err := collect(rows, l.fields, min(p.Size, total-offset))
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", l.table, err)
	}
	return records, total, nil
}

// children reads the rows of a table that belong to given parents.
type children[T any] struct {
	table  string
	fields []field[T]
	stmt   *sql.Stmt
}

func prepareChildren[T any](p *preparer, table, parent string) *children[T] {
	fields := fieldsOf[T]()
	return &children[T]{table, fields, p.prepare("SELECT " + columns(fields) + " FROM " + table +
		" WHERE " + parent + " IN (SELECT value FROM json_each(?)) ORDER BY " + parent + ", position")}
}

// of returns the children of these parents, in their order.
func (c *children[T]) of(ctx context.Context, tx *sql.Tx, parents []string) ([]T, error) {
	ids, err := json.Marshal(parents)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.table, err)
	}
	rows, err := tx.StmtContext(ctx, c.stmt).QueryContext(ctx, string(ids))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.table, err)
	}
	records, err := collect(rows, c.fields, int64(2*len(parents)))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.table, err)
	}
	return records, nil
}

// collect reads all rows and closes them. expected is their number, as far as it is known.
func collect[T any](rows *sql.Rows, fields []field[T], expected int64) (_ []T, err error) {
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	var record T
	dest := destinations(fields, &record)
	records := make([]T, 0, expected)
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, rows.Err()
}
