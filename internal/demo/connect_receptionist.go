package demo

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// receptionist is the configuration of the AI receptionist.
type receptionist struct {
	Personality personality `json:"personality"`
	Rules       []rule      `json:"rules"`
}

type personality struct {
	Name         string  `json:"name"`
	Tone         string  `json:"tone"`
	Greeting     string  `json:"greeting"`
	Language     string  `json:"language"`
	Instructions *string `json:"instructions"`
}

type rule struct {
	ID      string `json:"id"`
	When    string `json:"when"`
	Then    string `json:"then"`
	Enabled bool   `json:"enabled"`
}

const (
	maxRules    = 50
	maxFAQs     = 200
	maxServices = 200
)

func receptionistRoutes() []route {
	routes := []route{
		{method: http.MethodGet, path: "receptionist", serve: getReceptionist},
		{method: http.MethodPatch, path: "receptionist/personality", owner: true, serve: changeReceptionist(readPersonality)},
		{method: http.MethodPut, path: "receptionist/rules", owner: true, serve: changeReceptionist(readRules)},
	}
	routes = append(routes, entryRoutes("receptionist/faqs", faqEntries())...)
	return append(routes, entryRoutes("receptionist/services", serviceEntries())...)
}

func getReceptionist(ctx context.Context, c *connectCall) (int, []byte, error) {
	d, err := readReceptionist(ctx, c)
	if err != nil {
		return 0, nil, err
	}
	return answerReceptionist(c, &d)
}

// readReceptionist returns the business's receptionist, with defaults if it was never configured.
func readReceptionist(ctx context.Context, c *connectCall) (document[receptionist], error) {
	d, err := readDocument[receptionist](ctx, c, "receptionist")
	if err != nil {
		return d, err
	}
	if d.Version == 0 {
		d.Content.Personality = personality{
			Name: "Receptionist", Tone: "friendly", Greeting: c.business.Name + ", how can I help?", Language: "en",
		}
	}
	if d.Content.Rules == nil {
		d.Content.Rules = []rule{}
	}
	return d, nil
}

func answerReceptionist(c *connectCall, d *document[receptionist]) (int, []byte, error) {
	content, err := json.Marshal(d.Content)
	if err != nil {
		return 0, nil, fmt.Errorf("writing the receptionist: %w", err)
	}
	b := d.appendHead([]byte(`{"receptionist":{`), c)
	b = append(b, ',')
	return http.StatusOK, append(append(b, content[1:]...), '}'), nil
}

// changeReceptionist serves a change that read makes.
func changeReceptionist(read func(*connectCall, *receptionist)) func(context.Context, *connectCall) (int, []byte, error) {
	return func(ctx context.Context, c *connectCall) (int, []byte, error) {
		d, err := readReceptionist(ctx, c)
		if err != nil {
			return 0, nil, err
		}
		read(c, &d.Content)
		if err := c.problems.err(); err != nil {
			return 0, nil, err
		}
		if err := d.write(ctx, c, "receptionist"); err != nil {
			return 0, nil, err
		}
		return answerReceptionist(c, &d)
	}
}

func readPersonality(c *connectCall, r *receptionist) {
	p, in := &r.Personality, c.input(true)
	in.text("name", &p.Name, line(60))
	in.word("tone", &p.Tone, "friendly", "professional", "formal", "warm", "playful")
	in.text("greeting", &p.Greeting, line(500))
	in.text("language", &p.Language, languageRule())
	in.optText("instructions", &p.Instructions, lines(4000))
	in.end()
}

func readRules(c *connectCall, r *receptionist) {
	there := map[string]bool{}
	for _, rule := range r.Rules {
		there[rule.ID] = true
	}
	in := c.input(false)
	rules := []rule{}
	in.objects("rules", maxRules, func(item *input, _ int) {
		r := rule{Enabled: true}
		var id *string
		item.optText("id", &id, line(100))
		item.text("when", &r.When, line(500))
		item.text("then", &r.Then, line(500))
		item.flag("enabled", &r.Enabled)
		switch {
		case id == nil:
			r.ID = uuid.NewString()
		case !there[*id]:
			item.p.add(item.path+"id", "is of no rule that is there, or is given twice", "the id of a rule that is there, or none for a new one")
		default:
			r.ID = *id
			there[r.ID] = false
		}
		rules = append(rules, r)
	})
	in.end()
	r.Rules = rules
}

// head is what FAQs and services have in common.
type head struct {
	ID         string `db:"id"`
	BusinessID string `db:"business_id"`
	Key        string `db:"lookup_key" json:"-"` // the folded text that only one of a business has
	Version    int64  `db:"version"`
	CreatedAt  string `db:"created_at"`
	UpdatedAt  string `db:"updated_at"`
}

type faq struct {
	head
	Question string `db:"question"`
	Answer   string `db:"answer"`
	Enabled  bool   `db:"enabled"`
}

// bookable is a service that the receptionist offers.
type bookable struct {
	head
	Name            string   `db:"name"`
	Description     *string  `db:"description"`
	DurationMinutes *int64   `db:"duration_minutes"`
	Price           *decimal `db:"price"`
	Bookable        bool     `db:"bookable"`
}

// entries is a list of the receptionist whose entries are replaced as a whole.
type entries[T any] struct {
	kindOf[T]
	most  int
	head  func(*T) *head
	keyOf string // the member that only one of a business has
	read  func(*input, *T) (key string)
}

func faqEntries() *entries[faq] {
	return &entries[faq]{
		kindOf: kindOf[faq]{
			one: "faq", many: "faqs", what: "question", table: "receptionist_faqs", fields: fieldsOf[faq](),
			key: "created_at", id: "id", search: "question || ' ' || answer",
		},
		most: maxFAQs, head: func(r *faq) *head { return &r.head }, keyOf: "question",
		read: func(in *input, r *faq) string {
			r.Enabled = true
			in.text("question", &r.Question, line(300))
			in.text("answer", &r.Answer, lines(2000))
			in.flag("enabled", &r.Enabled)
			return r.Question
		},
	}
}

func serviceEntries() *entries[bookable] {
	return &entries[bookable]{
		kindOf: kindOf[bookable]{
			one: "service", many: "services", what: "service", table: "receptionist_services", fields: fieldsOf[bookable](),
			key: "created_at", id: "id", search: "name || ' ' || coalesce(description, '')",
		},
		most: maxServices, head: func(r *bookable) *head { return &r.head }, keyOf: "name",
		read: func(in *input, r *bookable) string {
			in.text("name", &r.Name, line(120))
			in.optText("description", &r.Description, lines(2000))
			in.optInteger("duration_minutes", &r.DurationMinutes, 5, 1440)
			in.optMoney("price", &r.Price)
			in.flag("bookable", &r.Bookable)
			if _, wrong := in.members["duration_minutes"]; r.Bookable && r.DurationMinutes == nil && (!wrong || len(in.p.all) == 0) {
				in.p.add("duration_minutes", "is required where bookable is true", "a whole number from 5 to 1440")
			}
			return r.Name
		},
	}
}

func entryRoutes[T any](path string, e *entries[T]) []route {
	return []route{
		{method: http.MethodGet, path: path, query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			return e.page(ctx, c, c.parameters())
		}},
		{method: http.MethodPost, path: path, serve: e.create},
		{method: http.MethodGet, path: path + "/{id}", serve: e.get},
		{method: http.MethodPut, path: path + "/{id}", serve: e.replace},
		{method: http.MethodDelete, path: path + "/{id}", owner: true, serve: e.delete},
	}
}

func (e *entries[T]) create(ctx context.Context, c *connectCall) (int, []byte, error) {
	row, now := new(T), instant(c.now)
	h := e.head(row)
	*h = head{ID: uuid.NewString(), BusinessID: c.business.ID, Version: 1, CreatedAt: now, UpdatedAt: now}
	if err := e.readInto(ctx, c, row); err != nil {
		return 0, nil, err
	}
	var n int
	if err := c.tx.QueryRowContext(ctx, "SELECT count(*) FROM "+e.table+" WHERE business_id = ?", c.business.ID).Scan(&n); err != nil {
		return 0, nil, fmt.Errorf("counting %s: %w", e.many, err)
	}
	if n >= e.most {
		return 0, nil, conflict("There is no room for another one.",
			detail{e.keyOf, fmt.Sprintf("would be number %d", n+1), fmt.Sprintf("at most %d; delete or replace one", e.most)})
	}
	if err := insert(ctx, c.tx, e.table, e.fields, []T{*row}); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, e.answer(row), nil
}

func (e *entries[T]) replace(ctx context.Context, c *connectCall) (int, []byte, error) {
	old, err := e.find(ctx, c, c.path[0])
	if err != nil {
		return 0, nil, err
	}
	row := new(T)
	h := e.head(row)
	*h = *e.head(old)
	h.Version++
	h.UpdatedAt = instant(c.now)
	if err := e.readInto(ctx, c, row); err != nil {
		return 0, nil, err
	}
	if err := e.update(ctx, c, row); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, e.answer(row), nil
}

// readInto reads the body into a row and rejects a duplicate key.
func (e *entries[T]) readInto(ctx context.Context, c *connectCall, row *T) error {
	in := c.input(false)
	key := foldedKey(e.read(in, row))
	if err := in.done(); err != nil {
		return err
	}
	h := e.head(row)
	h.Key = key
	var other string
	if err := c.tx.QueryRowContext(ctx, "SELECT coalesce((SELECT id FROM "+e.table+
		" WHERE business_id = ? AND lookup_key = ? AND id <> ?), '')", c.business.ID, key, h.ID).Scan(&other); err != nil {
		return fmt.Errorf("looking for the same %s: %w", e.keyOf, err)
	}
	if other != "" {
		return conflict("There is one with the same "+e.keyOf+" already.",
			detail{e.keyOf, "is that of another one, whose id is " + other, "one that no other has; or change the other one"})
	}
	return nil
}
