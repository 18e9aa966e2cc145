package demo

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/crypto/argon2"
)

// The roles of an account in its business.
const (
	RoleOwner  = "owner"
	RoleMember = "member"
)

// Account is a person's account in a business of a new database.
type Account struct {
	ID         string `json:"id"` // UUID
	BusinessID string `json:"business_id"`
	Email      string `json:"email"`
	Name       string `json:"name"`
	Role       string `json:"role"` // RoleOwner or RoleMember

	// Password is public: these accounts are for demonstrations and tests, and hold invented records only.
	Password string `json:"password"`
}

// account is a stored account.
type account struct {
	passwordHash string
	enabled      bool   // and so is its business: it may sign in
	record       string // JSON
}

// accountWhere returns the account with a value in a unique column, or an empty one if there is none.
func (s *Service) accountWhere(ctx context.Context, column, value string) (a account, err error) {
	err = s.store.read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT password_hash, status = 'active' AND account_status = 'active',
			json_object('id', a.id, 'email', a.email, 'name', a.name, 'role', role,
				'business', json_object('id', b.id, 'name', b.name, 'slug', b.slug, 'time_zone', b.time_zone))
			FROM accounts a JOIN businesses b ON b.id = a.business_id WHERE a.`+column+" = ?", value).
			Scan(&a.passwordHash, &a.enabled, &a.record)
	})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return a, fmt.Errorf("reading an account: %w", err)
	}
	return a, nil
}

// accountRoutes serves the calls of the sign-in page.
func accountRoutes(s *Service) []route {
	password := one("", "a text of 1 to 1024 bytes", "is not a password that can be", func(v jsontext.Value) (any, bool) {
		return unquote(v), v.Kind() == '"' && unquote(v) != "" && len(unquote(v)) <= 1024
	})
	input := schema{{name: "email", form: line(maxHeaderText), required: true}, {name: "password", form: password, required: true}}
	signIn := func(ctx context.Context, c *connectCall) (int, []byte, error) {
		in := input.read(&c.problems, "", c.body, false)
		if err := c.problems.err(); err != nil {
			return 0, nil, err
		}
		a, err := s.accountWhere(ctx, "email_key", fold(in.text("email")))
		if err != nil {
			return 0, nil, err
		}
		// Unknown addresses are checked against a dummy hash, so that response times do not reveal accounts.
		right, err := s.passwords.check(ctx, a.passwordHash, in.text("password"))
		if err == nil && (!right || !a.enabled) {
			err = newError(http.StatusUnauthorized, "INVALID_CREDENTIALS", "The e-mail address or the password is wrong.")
		}
		return http.StatusOK, []byte(`{"account":` + a.record + "}"), err
	}
	get := func(ctx context.Context, c *connectCall) (int, []byte, error) {
		a, err := s.accountWhere(ctx, "id", c.path[0])
		if err == nil && !a.enabled {
			err = newError(http.StatusNotFound, "NOT_FOUND", "There is no such account that may sign in.")
		}
		return http.StatusOK, []byte(`{"account":` + a.record + "}"), err
	}
	return []route{
		{method: http.MethodPost, path: "sign-in", nobody: true, serve: signIn},
		{method: http.MethodGet, path: "accounts/{id}", nobody: true, serve: get},
	}
}

// The cost of a password: OWASP's first recommendation for Argon2id with little memory (m=19 MiB, t=2, p=1), and RFC
// 9106's lengths of salt and tag.
const (
	passwordSalt   = 16 // bytes
	passwordTag    = 32
	passwordPrefix = "$argon2id$v=19$m=19456,t=2,p=1$" //nolint:gosec // it has no password
)

// passwords checks passwords, a few at a time: each takes 19 MiB.
type passwords struct {
	slots    chan struct{}
	patience time.Duration // how long a check waits for a slot
}

const passwordChecks = 4

func newPasswords() *passwords {
	return &passwords{slots: make(chan struct{}, passwordChecks), patience: 3 * time.Second}
}

// hashPassword returns the hash of a password as a PHC string.
func hashPassword(password string) string {
	salt := make([]byte, passwordSalt)
	_, _ = rand.Read(salt) // never fails
	return hashWith(salt, password)
}

func hashWith(salt []byte, password string) string {
	tag := argon2.IDKey([]byte(password), salt, 2, 19<<10, 1, passwordTag)
	return passwordPrefix + base64.RawStdEncoding.EncodeToString(salt) + "$" + base64.RawStdEncoding.EncodeToString(tag)
}

// check compares a password with a hash. An empty hash never matches, but takes as long. If too many checks are
// waiting, check fails with 429.
func (p *passwords) check(ctx context.Context, hash, password string) (bool, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(hash, passwordPrefix), "$")
	salt, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return false, fmt.Errorf("reading a password's salt: %w", err)
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(p.patience):
		return false, &httpError{
			Status: http.StatusTooManyRequests, Code: "BUSY", Message: "Too many people are signing in just now.", RetryAfter: 2,
		}
	}
	return subtle.ConstantTimeCompare([]byte(hashWith(salt, password)), []byte(hash)) == 1, nil
}
