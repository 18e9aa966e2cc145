package demo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

const (
	defaultLimit = 25
	maxLimit     = 100
	maxQuery     = 200       // characters
	maxCursor    = 512       // bytes
	maxPart      = 512 << 10 // bytes, from which on a page gets no more records
)

// kind is a kind of records of /connect/v1.
type kind struct {
	list
	one     string // the member of a response
	what    string // in sentences
	alone   string // the view to read one record from, if it is not that of the list
	within  string // a column that has the first parameter of the path
	search  bool   // the list's view has a column search
	filters []filter
	ahead   string // a column with a time: it is not past, unless the parameters from and to say otherwise

	table    string // that is written, if it can be
	input    schema
	check    func(context.Context, *connectCall, any, values) error // of what is stored under an ID, nil for a new record
	numbered bool                                                   // the database gives the IDs
	modified string                                                 // the column with the time of the last change
}

// filter is a parameter of a list, and the condition on its records.
type filter struct {
	field
	condition string
	of        string // a table: the value has to be the ID of a record there
	after     string // a parameter that comes before this one in time
}

// oneOf filters by a column with fixed words, and anyOf by several of them.
func oneOf(name, column string, words ...string) filter {
	return filter{field: field{name: name, form: word(words...)}, condition: column + " = ?"}
}

func anyOf(name, column string, words ...string) filter {
	return filter{field: field{name: name, form: wordList(words...)}, condition: column + " IN (SELECT value FROM json_each(?))"}
}

// since and before filter by a half-open interval.
func since(name, column string) filter {
	return filter{field: field{name: name, form: moment()}, condition: column + " >= ?"}
}

func before(name, column, since string) filter {
	return filter{field: field{name: name, form: moment()}, condition: column + " < ?", after: since}
}

func sinceUntil(column string) []filter {
	return []filter{since("since", column), before("until", column, "since")}
}

// belonging filters by the ID of another record of the business.
func belonging(name, table string) filter {
	return filter{field: field{name: name, form: line(maxID)}, condition: name + " = ?", of: table}
}

// where returns the condition that the parameters of a list make.
func (k *kind) where(ctx context.Context, c *connectCall, v values) (*where, error) {
	w := k.of(c)
	for _, f := range k.filters {
		value := v.text(f.name)
		if value == "" {
			continue
		}
		w.and(f.condition, value)
		if f.after != "" && value <= v.text(f.after) {
			c.problems.add(f.name, "is not after "+f.after, "an instant after "+f.after)
		}
		if f.of == "" {
			continue
		}
		var found bool
		if err := c.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+f.of+" WHERE business_id = ?1 AND id = ?2 AND id || '' = ?2)",
			c.business.id, value).Scan(&found); err != nil {
			return nil, fmt.Errorf("filtering %s: %w", k.name, err)
		}
		if !found {
			c.problems.add(f.name, "is none of the business's "+f.of, "an id of the "+f.of+"' list")
		}
	}
	for word := range strings.FieldsSeq(fold(v.text("query"))) {
		w.and("instr(fold(search), ?) > 0", word)
	}
	return w, nil
}

// cursor is the position after a part of a list.
type cursor struct {
	Key  string `json:"k"`
	ID   string `json:"i"`
	List string `json:"l"` // whose it is, with the filters
}

// of is the condition that all records of a call meet.
func (k *kind) of(c *connectCall) *where {
	w := ofBusiness(c.business.id)
	if k.within != "" {
		w.and(k.within+" = ?", c.path[0])
	}
	return w
}

// getList serves the part of the list that the parameters ask for.
func (k *kind) getList(ctx context.Context, c *connectCall) (int, []byte, error) {
	parameters := schema{{name: "limit", form: integerText(maxLimit), initial: int64(defaultLimit)}, {name: "cursor", form: line(maxCursor)}}
	if k.search {
		parameters = append(parameters, field{name: "query", form: line(maxQuery)})
	}
	for _, f := range k.filters {
		parameters = append(parameters, f.field)
	}
	v := parameters.read(&c.problems, "", c.query, false)
	w, err := k.where(ctx, c, v)
	if err != nil {
		return 0, nil, err
	}
	limit, _ := v["limit"].(int64)
	list := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %q", k.name, w.conditions, w.args)))[:12]
	if from := v.text("cursor"); from != "" {
		var at cursor
		b, err := base64.RawURLEncoding.Strict().DecodeString(from)
		if err != nil || json.Unmarshal(b, &at, json.RejectUnknownMembers(true)) != nil || at.List != list {
			c.problems.add("cursor", "is not one of this list with these filters", "the next_cursor of the part before, or none")
		}
		beyond := ">"
		if k.newest {
			beyond = "<"
		}
		w.and("("+strings.Join(k.order, ", ")+") "+beyond+" (?, ?)", at.Key, at.ID)
	}
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	// It is not one of the filters that a cursor belongs to, because time goes on between two parts.
	if now, to := instant(c.now), v.text("to"); k.ahead != "" && v.text("from") == "" && (to == "" || to > now) {
		w.and(k.ahead+" >= ?", now)
	}
	records, err := k.read(ctx, c.tx, w, limit+1)
	if err != nil {
		return 0, nil, err
	}
	var part []string
	n := 0
	for size := 0; n < len(records) && int64(n) < limit && size < maxPart; n++ {
		part = append(part, records[n].record)
		size += len(records[n].record)
	}
	b := fmt.Appendf(nil, `{%q:[%s],"next_cursor":`, k.name, strings.Join(part, ","))
	if n == len(records) {
		return http.StatusOK, append(b, "null}"...), nil
	}
	next, err := json.Marshal(cursor{fmt.Sprint(records[n-1].key), fmt.Sprint(records[n-1].id), list})
	return http.StatusOK, fmt.Appendf(b, "%q}", base64.RawURLEncoding.EncodeToString(next)), err
}

// find returns a record of the business if it exists and has the version that If-Match asks for.
func (k *kind) find(ctx context.Context, c *connectCall, id any) (found listed, err error) {
	// As it is written: a number has several forms.
	w := k.of(c).and("id = ? AND id || '' = ?", id, fmt.Sprint(id))
	var version int64
	err = c.tx.QueryRowContext(ctx, "SELECT record, id, coalesce(record ->> '$.version', 0) FROM "+cmp.Or(k.alone, k.from)+w.String(), w.args...).
		Scan(&found.record, &found.id, &version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return found, newError(http.StatusNotFound, "NOT_FOUND", "The business has no such "+k.what+".")
	case err == nil && k.table != "":
		err = c.matches(version)
	}
	return found, err
}

// on serves a call for the record that the last path parameter names.
func (k *kind) on(serve func(context.Context, *connectCall, listed) (int, []byte, error)) handler {
	return func(ctx context.Context, c *connectCall) (int, []byte, error) {
		found, err := k.find(ctx, c, c.path[len(c.path)-1])
		if err != nil {
			return 0, nil, err
		}
		return serve(ctx, c, found)
	}
}

func (k *kind) get(ctx context.Context, c *connectCall) (int, []byte, error) {
	return k.answer(ctx, c, http.StatusOK, c.path[len(c.path)-1])
}

// answer returns the response with a record.
func (k *kind) answer(ctx context.Context, c *connectCall, status int, id any) (int, []byte, error) {
	c.ifMatch = 0 // it had to match before
	found, err := k.find(ctx, c, id)
	return status, []byte(`{"` + k.one + `":` + found.record + "}"), err
}

// create serves a POST of a new record.
func (k *kind) create(ctx context.Context, c *connectCall) (int, []byte, error) {
	v := k.input.read(&c.problems, "", c.body, false)
	if err := k.check(ctx, c, nil, v); err != nil {
		return 0, nil, err
	}
	v["business_id"], v[k.order[0]], v[k.modified] = c.business.id, instant(c.now), instant(c.now)
	if !k.numbered {
		v["id"] = uuid.NewString()
	}
	id, err := insert(ctx, c.tx, k.table, v)
	if err != nil {
		return 0, nil, err
	}
	return k.answer(ctx, c, http.StatusCreated, id)
}

func insert(ctx context.Context, tx *sql.Tx, table string, v values) (id any, err error) {
	var args []any
	columns := slices.Sorted(maps.Keys(v))
	for _, column := range columns {
		args = append(args, v[column])
	}
	if err := tx.QueryRowContext(ctx, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES (?"+
		strings.Repeat(", ?", len(args)-1)+") RETURNING id", args...).Scan(&id); err != nil {
		return nil, fmt.Errorf("inserting into %s: %w", table, err)
	}
	return id, nil
}

// patch serves a change of some members.
func (k *kind) patch(ctx context.Context, c *connectCall, found listed) (int, []byte, error) {
	var v values
	if err := json.Unmarshal([]byte(found.record), &v); err != nil {
		return 0, nil, fmt.Errorf("reading %s: %w", k.from, err)
	}
	maps.DeleteFunc(v, func(name string, _ any) bool {
		return !slices.ContainsFunc(k.input, func(m field) bool { return m.name == name })
	})
	maps.Copy(v, k.input.read(&c.problems, "", c.body, true))
	return k.update(ctx, c, found.id, v)
}

func (k *kind) replace(ctx context.Context, c *connectCall, found listed) (int, []byte, error) {
	return k.update(ctx, c, found.id, k.input.read(&c.problems, "", c.body, false))
}

// update checks and stores the values of a record.
func (k *kind) update(ctx context.Context, c *connectCall, id any, v values) (int, []byte, error) {
	if err := k.check(ctx, c, id, v); err != nil {
		return 0, nil, err
	}
	v[k.modified] = instant(c.now)
	set, args := "version = version + 1", []any{}
	for column, value := range v {
		set, args = set+", "+column+" = ?", append(args, value)
	}
	if _, err := c.tx.ExecContext(ctx, "UPDATE "+k.table+" SET "+set+" WHERE business_id = ? AND id = ?",
		append(args, c.business.id, id)...); err != nil {
		return 0, nil, fmt.Errorf("updating %s: %w", k.table, err)
	}
	return k.answer(ctx, c, http.StatusOK, id)
}

func (k *kind) delete(ctx context.Context, c *connectCall, found listed) (int, []byte, error) {
	if _, err := c.tx.ExecContext(ctx, "DELETE FROM "+k.table+" WHERE business_id = ? AND id = ?", c.business.id, found.id); err != nil {
		return 0, nil, fmt.Errorf("deleting from %s: %w", k.table, err)
	}
	text, err := json.Marshal(found.id)
	return http.StatusOK, fmt.Appendf(nil, `{"deleted":true,"id":%s}`, text), err
}
