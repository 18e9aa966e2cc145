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
	RoleOwner  Role = "owner"  // may approve, change and end all connections of the business, view its activity and manage keys
	RoleMember Role = "member" // may sign in and view connections
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
	TimeZone     string `json:"time_zone"` // IANA name, such as "Europe/Berlin"; may be empty
}

// Location returns the time zone of the business, or UTC if it is empty or unknown.
func (b Business) Location() *time.Location {
	if l, err := time.LoadLocation(b.TimeZone); err == nil && b.TimeZone != "Local" {
		return l
	}
	return time.UTC
}

// IsOwner reports whether the account has RoleOwner.
func (a Account) IsOwner() bool { return a.Role == RoleOwner }

// DisplayName returns the account's name, or its email address if it has none.
func (a Account) DisplayName() string { return cmp.Or(a.Name, a.Email) }

// Errors of a [Service].
var (
	ErrWrongCredentials = errors.New("the email address or the password is wrong") // or there is no such account
	ErrUnknown          = errors.New("no such account")                            // or it may no longer sign in
	ErrUnavailable      = errors.New("the accounts service is unavailable")        // or its response is invalid

	ErrWrongAccount = fmt.Errorf("%w: the response is about another account", ErrUnavailable) // than the requested one
)

// Service looks up accounts. Every error wraps ErrWrongCredentials, ErrUnknown or ErrUnavailable, and the context's error if the
// context has ended.
type Service interface {
	// SignIn checks a password and returns the account, or ErrWrongCredentials. An unknown address must take as long as a wrong
	// password. [FoldAddress] returns the same for the account's address and email.
	SignIn(ctx context.Context, email, password string) (Account, error)

	// Account returns the account with an ID, or ErrUnknown.
	Account(ctx context.Context, id string) (Account, error)
}
