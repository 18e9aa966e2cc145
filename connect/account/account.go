// Package account defines the accounts of a business and a client for the platform's accounts service, which stores them and
// checks passwords. In the demo, the demo data service is the accounts service.
package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // a minimal image has no time zone files
)

// Role is what an account may do in its business.
type Role string

// Roles. All roles of the accounts service other than RoleOwner become RoleMember.
const (
	RoleOwner  Role = "owner"  // may approve connections, see and end those of the whole business, and manage keys
	RoleMember Role = "member" // may sign in and view
)

// Account is a user's account in one business.
type Account struct {
	ID       string `json:"id"` // opaque, visible ASCII
	Email    string `json:"email"`
	Name     string `json:"name"` // of the user; may be empty
	Role     Role   `json:"role"`
	Business `json:"business"`
}

// Business is the business of an account.
type Business struct {
	BusinessID   string `json:"id"` // opaque, visible ASCII
	BusinessName string `json:"name"`
	BusinessSlug string `json:"slug"`      // visible ASCII
	TimeZone     string `json:"time_zone"` // in the IANA database; may be empty
}

// Location returns the time zone of the business, or UTC if it is unknown.
func (b Business) Location() *time.Location {
	if l, err := time.LoadLocation(b.TimeZone); err == nil && b.TimeZone != "Local" {
		return l
	}
	return time.UTC
}

// IsOwner reports whether the account may approve connections and manage keys.
func (a Account) IsOwner() bool { return a.Role == RoleOwner }

// DisplayName returns the account's name, or its email address if it has none.
func (a Account) DisplayName() string { return cmp.Or(a.Name, a.Email) }

// Errors of a [Service].
var (
	ErrWrongCredentials = errors.New("the email address or the password is wrong") // or there is no such account
	ErrUnknown          = errors.New("no such account")                            // or it may no longer sign in
	ErrUnavailable      = errors.New("the accounts service is unavailable")        // or its response is invalid

	ErrWrongAccount = fmt.Errorf("%w: the response is about another account", ErrUnavailable) // than the one asked for
)

// Service looks up accounts. Every error wraps one of ErrWrongCredentials, ErrUnknown and ErrUnavailable, and the context's
// error if it ended.
type Service interface {
	// SignIn checks a password and returns the account, or ErrWrongCredentials. An unknown address takes as long as a wrong
	// password. The account's address is the one given, as [FoldAddress] compares them.
	SignIn(ctx context.Context, email, password string) (Account, error)

	// Account returns the account, or ErrUnknown.
	Account(ctx context.Context, id string) (Account, error)
}
