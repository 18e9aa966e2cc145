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

	"github.com/go-json-experiment/json"
	"golang.org/x/crypto/argon2"
)

// The roles of an account in its business.
const (
	RoleOwner  = "owner"
	RoleMember = "member"
)

// The states of an account. A disabled account cannot sign in.
const (
	accountEnabled  = "active"
	accountDisabled = "disabled"
)

// Account is a person's account in a business of a new database.
type Account struct {
	ID         string `json:"id"` // UUID
	BusinessID string `json:"-"`
	Email      string `json:"email"`
	Name       string `json:"name"`
	Role       string `json:"role"` // RoleOwner or RoleMember

	// Password is public: these accounts are for demonstrations and tests, and hold invented records only.
	Password string `json:"password"`
}

type accountRow struct {
	ID           string `db:"id"`
	BusinessID   string `db:"business_id" json:"-"`
	Email        string `db:"email"`
	EmailKey     string `db:"email_key" json:"-"`
	Name         string `db:"name"`
	Role         string `db:"role"`
	Status       string `db:"status" json:"-"`
	PasswordHash string `db:"password_hash" json:"-"`
	CreatedAt    string `db:"created_at" json:"-"`
}

// accountWhere returns the account with a value in a unique column, or sql.ErrNoRows.
func accountWhere(ctx context.Context, tx *sql.Tx, column, value string) (row accountRow, err error) {
	fields := fieldsOf[accountRow]()
	err = tx.QueryRowContext(ctx, "SELECT "+columns(fields)+" FROM accounts WHERE "+column+" = ?", value).
		Scan(destinations(fields, &row)...)
	return row, err
}

// answerAboutAccounts serves the calls of the sign-in page, which belong to no business yet.
func (a *connectAPI) answerAboutAccounts(r *http.Request, segments []string) (int, []byte, error) {
	switch {
	case len(segments) == 1 && segments[0] == "sign-in":
		if r.Method != http.MethodPost {
			return 0, nil, notAllowed(http.MethodPost)
		}
		return a.signIn(r)
	case len(segments) == 2 && segments[0] == "accounts" && segments[1] != "":
		if r.Method != http.MethodGet {
			return 0, nil, notAllowed(http.MethodGet)
		}
		return a.account(r, segments[1])
	}
	return 0, nil, newError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
}

// maxPassword is the maximum length of a password in bytes.
const maxPassword = 1024

func (a *connectAPI) signIn(r *http.Request) (int, []byte, error) {
	c := &connectCall{now: a.service.now().UTC()}
	var err error
	if c.body, err = readBody(r); err != nil {
		return 0, nil, err
	}
	in := c.input(false)
	var email, password string
	in.text("email", &email, line(maxHeaderText))
	if v, ok := in.take("password"); !ok {
		in.missing("password", "a text")
	} else if v.Kind() != '"' || json.Unmarshal(v, &password) != nil || password == "" || len(password) > maxPassword {
		in.p.add("password", "is not a password that can be", "a text of 1 to 1024 bytes")
	}
	if err := in.done(); err != nil {
		return 0, nil, err
	}

	var row accountRow
	var business connectBusiness
	ctx := r.Context()
	err = a.st.read(ctx, func(tx *sql.Tx) (err error) {
		row, err = accountWhere(ctx, tx, "email_key", fold(email))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		// Looked up even for an unknown address, so that both cases take equally long.
		business, err = findBusiness(ctx, tx, row.BusinessID)
		return err
	})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, nil, err
	}
	// Unknown addresses are checked against a dummy hash, so that response times do not reveal accounts.
	right, checkErr := a.service.passwords.check(r.Context(), row.PasswordHash, password)
	if checkErr != nil {
		return 0, nil, checkErr
	}
	if err != nil || !right || row.Status != accountEnabled || business.AccountStatus != AccountActive {
		return 0, nil, newError(http.StatusUnauthorized, "INVALID_CREDENTIALS", "The e-mail address or the password is wrong.")
	}
	return http.StatusOK, appendAccount(nil, &row, &business), nil
}

func (a *connectAPI) account(r *http.Request, id string) (int, []byte, error) {
	var row accountRow
	var business connectBusiness
	ctx := r.Context()
	err := a.st.read(ctx, func(tx *sql.Tx) (err error) {
		if row, err = accountWhere(ctx, tx, "id", id); err == nil {
			business, err = findBusiness(ctx, tx, row.BusinessID)
		}
		return err
	})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, nil, err
	}
	if err != nil || row.Status != accountEnabled || business.AccountStatus != AccountActive {
		return 0, nil, newError(http.StatusNotFound, "NOT_FOUND", "There is no such account that may sign in.")
	}
	return http.StatusOK, appendAccount(nil, &row, &business), nil
}

func appendAccount(b []byte, row *accountRow, business *connectBusiness) []byte {
	b = appendRecord(append(b, `{"account":`...), fieldsOf[accountRow](), row)
	b = append(b[:len(b)-1], `,"business":{"id":`...)
	b = appendString(b, business.ID)
	b = append(b, `,"name":`...)
	b = appendString(b, business.Name)
	b = append(b, `,"slug":`...)
	b = appendString(b, business.Slug)
	return append(b, "}}}"...)
}

// The cost of a password: OWASP's first recommendation for Argon2id with little memory (m=19 MiB, t=2, p=1), and RFC
// 9106's lengths of salt and tag.
const (
	passwordMemory = 19 << 10 // KiB
	passwordPasses = 2
	passwordLanes  = 1
	passwordSalt   = 16
	passwordTag    = 32
)

// passwords checks passwords, a few at a time: each takes 19 MiB.
type passwords struct {
	slots   chan struct{}
	patient time.Duration // how long one waits for a slot
	nobody  string        // the hash of a password that is nobody's
}

const passwordChecks = 4

func newPasswords() *passwords {
	return &passwords{
		slots: make(chan struct{}, passwordChecks), patient: 3 * time.Second,
		nobody: encodePassword(make([]byte, passwordSalt), make([]byte, passwordTag)),
	}
}

// hashPassword returns the hash of a password as a PHC string.
func hashPassword(password string) string {
	salt := make([]byte, passwordSalt)
	_, _ = rand.Read(salt) // never fails
	return encodePassword(salt, passwordKey(password, salt))
}

func passwordKey(password string, salt []byte) []byte {
	return argon2.IDKey([]byte(password), salt, passwordPasses, passwordMemory, passwordLanes, passwordTag)
}

func passwordPrefix() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, passwordMemory, passwordPasses, passwordLanes)
}

func encodePassword(salt, tag []byte) string {
	return passwordPrefix() + base64.RawStdEncoding.EncodeToString(salt) + "$" + base64.RawStdEncoding.EncodeToString(tag)
}

// check compares a password with a hash. An empty hash never matches, but takes as long. If too many checks are
// waiting, check fails with 429.
func (p *passwords) check(ctx context.Context, hash, password string) (bool, error) {
	if hash == "" {
		hash = p.nobody
	}
	rest, ok := strings.CutPrefix(hash, passwordPrefix())
	saltText, tagText, cut := strings.Cut(rest, "$")
	salt, saltErr := base64.RawStdEncoding.DecodeString(saltText)
	tag, tagErr := base64.RawStdEncoding.DecodeString(tagText)
	if err := errors.Join(saltErr, tagErr); !ok || !cut || err != nil {
		return false, errors.New("checking a password: the hash is not one of ours")
	}
	timer := time.NewTimer(p.patient)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	case <-timer.C:
		return false, &httpError{
			Status: http.StatusTooManyRequests, Code: "BUSY", Message: "Too many people are signing in just now.", RetryAfter: 2,
		}
	}
	right := subtle.ConstantTimeCompare(passwordKey(password, salt), tag) == 1
	return right && hash != p.nobody, nil
}
