package demo

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/cases"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
	"golang.org/x/text/unicode/norm"
	"modernc.org/sqlite"
)

const (
	defaultLimit = 25
	maxLimit     = 100
	maxQuery     = 200 // characters
	maxCursor    = 512 // bytes

	// maxPart is the size in bytes from which on a page gets no more records.
	maxPart = 512 << 10
)

// fold is also available in SQL.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction("fold", 1,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			if s, ok := args[0].(string); ok {
				return fold(s), nil
			}
			return args[0], nil
		})
}

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

// kindOf describes a resource of /connect/v1.
type kindOf[T any] struct {
	one, many string // the member of an answer
	what      string // in sentences
	table     string // or view
	fields    []field[T]

	key, id string // the columns that order it
	newest  bool   // descending
	search  string // the SQL expression that words are looked for in
}

// filter is a condition on a list.
type filter struct {
	condition string // with one parameter
	value     any
}

// equal returns a filter by a column unless the value is empty.
func equal(column, value string) []filter {
	if value == "" {
		return nil
	}
	return []filter{{column + " = ?", value}}
}

// cursor is the position after a page.
type cursor struct {
	Key  string `json:"k"`
	ID   string `json:"i"`
	List string `json:"l"` // whose it is
}

// page returns a page of a list. It reads the limit, the cursor and the search words from q and ends it.
func (k *kindOf[T]) page(ctx context.Context, c *connectCall, q *parameters, filters ...filter) (int, []byte, error) {
	limit := q.integer("limit", defaultLimit, maxLimit)
	from := q.text("cursor", maxCursor)
	conditions, args := []string{"business_id = ?"}, []any{c.business.ID}
	for _, f := range filters {
		conditions, args = append(conditions, f.condition), append(args, f.value)
	}
	if k.search != "" {
		for word := range strings.FieldsSeq(fold(q.text("query", maxQuery))) {
			conditions, args = append(conditions, "instr(fold("+k.search+"), ?) > 0"), append(args, word)
		}
	}
	q.end()
	list := listName(k.many, conditions, args)
	if from != "" {
		at, ok := readCursor(from, list)
		if !ok {
			q.p.add("cursor", "is not one of this list with these filters", "the next_cursor of the part before, or none")
		}
		conditions, args = append(conditions, "("+k.key+", "+k.id+") "+k.beyond()+" (?, ?)"), append(args, at.Key, k.idValue(at.ID))
	}
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	direction := ""
	if k.newest {
		direction = " DESC"
	}
	rows, err := c.tx.QueryContext(ctx, "SELECT "+columns(k.fields)+" FROM "+k.table+" WHERE "+strings.Join(conditions, " AND ")+
		" ORDER BY "+k.key+direction+", "+k.id+direction+" LIMIT ?", append(args, limit+1)...)
	if err != nil {
		return 0, nil, fmt.Errorf("reading %s: %w", k.table, err)
	}
	records, err := collect(rows, k.fields, limit+1)
	if err != nil {
		return 0, nil, fmt.Errorf("reading %s: %w", k.table, err)
	}
	b, n := append([]byte(nil), `{"`+k.many+`":[`...), 0
	for n < len(records) && int64(n) < limit && (n == 0 || len(b) < maxPart) {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendRecord(b, k.fields, &records[n])
		n++
	}
	b = append(b, `],"next_cursor":`...)
	if n == len(records) {
		return http.StatusOK, append(b, "null}"...), nil
	}
	last := &records[n-1]
	next := cursor{fmt.Sprint(k.column(k.key).value(last)), fmt.Sprint(k.column(k.id).value(last)), list}
	return http.StatusOK, append(appendString(b, next.String()), '}'), nil
}

func (k *kindOf[T]) beyond() string {
	if k.newest {
		return "<"
	}
	return ">"
}

func (k *kindOf[T]) column(name string) *field[T] {
	return &k.fields[slices.IndexFunc(k.fields, func(f field[T]) bool { return f.name == name })]
}

// idValue converts an ID to its database type: the IDs of contacts are integers.
func (k *kindOf[T]) idValue(id string) any {
	if _, isInteger := k.column(k.id).value(new(T)).(int64); !isInteger {
		return id
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return nil // which no record has
	}
	return n
}

// listName identifies a list with its filters.
func listName(list string, conditions []string, args []any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", list, conditions, args))
	return hex.EncodeToString(sum[:6])
}

func (c cursor) String() string {
	b, err := json.Marshal(c)
	if err != nil { // never for texts
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(s, list string) (c cursor, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || json.Unmarshal(b, &c, json.RejectUnknownMembers(true)) != nil {
		return cursor{}, false
	}
	return c, c.List == list
}

// find returns a record of the business if it exists and has the version that If-Match asks for.
func (k *kindOf[T]) find(ctx context.Context, c *connectCall, id string, filters ...filter) (*T, error) {
	conditions, args := "business_id = ? AND "+k.id+" = ?", []any{c.business.ID, k.idValue(id)}
	for _, f := range filters {
		conditions, args = conditions+" AND "+f.condition, append(args, f.value)
	}
	record := new(T)
	err := c.tx.QueryRowContext(ctx, "SELECT "+columns(k.fields)+" FROM "+k.table+" WHERE "+conditions, args...).
		Scan(destinations(k.fields, record)...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, notFound(k.what)
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", k.table, err)
	}
	for i := range k.fields {
		if version, ok := k.fields[i].value(record).(int64); ok && k.fields[i].name == "version" {
			return record, c.matches(version)
		}
	}
	return record, nil
}

// get returns the record that the last path parameter names.
func (k *kindOf[T]) get(ctx context.Context, c *connectCall) (int, []byte, error) {
	record, err := k.find(ctx, c, c.path[len(c.path)-1])
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, k.answer(record), nil
}

// answer returns the response with a record.
func (k *kindOf[T]) answer(record *T) []byte {
	return append(appendRecord([]byte(`{"`+k.one+`":`), k.fields, record), '}')
}

// update stores a changed record.
func (k *kindOf[T]) update(ctx context.Context, c *connectCall, record *T) error {
	var set []string
	var args []any
	for i := range k.fields {
		if f := &k.fields[i]; f.name != k.id && f.name != "business_id" {
			set, args = append(set, f.name+" = ?"), append(args, f.value(record))
		}
	}
	args = append(args, c.business.ID, k.column(k.id).value(record))
	if _, err := c.tx.ExecContext(ctx, "UPDATE "+k.table+" SET "+strings.Join(set, ", ")+
		" WHERE business_id = ? AND "+k.id+" = ?", args...); err != nil {
		return fmt.Errorf("updating %s: %w", k.table, err)
	}
	return nil
}

// delete deletes the record that the last path parameter names.
func (k *kindOf[T]) delete(ctx context.Context, c *connectCall) (int, []byte, error) {
	record, err := k.find(ctx, c, c.path[len(c.path)-1])
	if err != nil {
		return 0, nil, err
	}
	return k.remove(ctx, c, record)
}

// remove deletes a record.
func (k *kindOf[T]) remove(ctx context.Context, c *connectCall, record *T) (int, []byte, error) {
	id := k.column(k.id)
	if _, err := c.tx.ExecContext(ctx, "DELETE FROM "+k.table+" WHERE business_id = ? AND "+k.id+" = ?",
		c.business.ID, id.value(record)); err != nil {
		return 0, nil, fmt.Errorf("deleting from %s: %w", k.table, err)
	}
	return http.StatusOK, append(id.json([]byte(`{"deleted":true,"id":`), record), '}'), nil
}

// exists reports whether the business has a record with that ID.
func (c *connectCall) exists(ctx context.Context, table string, id any) (found bool, err error) {
	err = c.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+table+" WHERE business_id = ? AND id = ?)", c.business.ID, id).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("looking into %s: %w", table, err)
	}
	return found, nil
}
