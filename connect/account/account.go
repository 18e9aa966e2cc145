// Package account says who is signed in: the accounts of a business, their roles, and a client for the accounts service
// that holds them. The service is the platform's (in the demo, the demo data service's); passwords are checked there and
// are nowhere kept here.
package account

import (
	"context"
	"errors"
)

// Role is what an account may do in its business.
type Role string

// The roles. Whatever an accounts service calls anything else than RoleOwner is a RoleMember here.
const (
	// RoleOwner may approve connections, see and end everybody's, and manage keys.
	RoleOwner Role = "owner"

	// RoleMember may sign in and look, and do none of that.
	RoleMember Role = "member"
)

// Account is a person's account in one business.
type Account struct {
	ID    string // opaque, visible ASCII
	Email string
	Name  string // the person's, for people; may be empty
	Role  Role

	BusinessID   string // opaque, visible ASCII
	BusinessName string // for people
	BusinessSlug string // visible ASCII
}

// IsOwner reports whether the account may approve connections and manage keys.
func (a Account) IsOwner() bool { return a.Role == RoleOwner }

// DisplayName is what people call the account: its name, or its address if it has none.
func (a Account) DisplayName() string {
	if a.Name != "" {
		return a.Name
	}
	return a.Email
}

// What a [Service] has to say when it has no account to give.
var (
	// ErrWrongCredentials says that there is no such account, or that the password is another: never which of them.
	ErrWrongCredentials = errors.New("the email address or the password is wrong")

	// ErrUnknown says that the service knows for certain that there is no such account, or none any more.
	ErrUnknown = errors.New("no such account")

	// ErrUnavailable says that the service could not be asked, or gave no answer that can be used.
	ErrUnavailable = errors.New("the accounts service is unavailable")
)

// Service finds accounts. Every error is one of ErrWrongCredentials, ErrUnknown and ErrUnavailable in the sense of
// errors.Is; where the context ended, its error is in the chain as well.
type Service interface {
	// SignIn returns the account that email and password belong to, or ErrWrongCredentials. It takes as long for an
	// address that it does not know as for a wrong password.
	SignIn(ctx context.Context, email, password string) (Account, error)

	// Account returns the account as it is now, or ErrUnknown if it is gone or may not sign in any more.
	Account(ctx context.Context, id string) (Account, error)
}
