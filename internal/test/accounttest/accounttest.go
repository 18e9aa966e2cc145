// Package accounttest is an accounts service in memory.
package accounttest

import (
	"context"
	"crypto/subtle"
	"fmt"
	"strings"
	"sync"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
)

// Password is the password of every account.
const Password = "correct horse battery staple"

// Service has accounts that tests can change.
type Service struct {
	mu       sync.Mutex
	accounts map[string]account.Account // by id
	down     bool
	signIns  int
}

// New returns a service with accounts.
func New(accounts ...account.Account) *Service {
	s := &Service{accounts: map[string]account.Account{}}
	s.Put(accounts...)
	return s
}

// Put adds or replaces accounts.
func (s *Service) Put(accounts ...account.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range accounts {
		s.accounts[a.ID] = a
	}
}

// Remove removes an account.
func (s *Service) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accounts, id)
}

// SetDown begins or ends an outage.
func (s *Service) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// SignIns returns how many passwords were checked.
func (s *Service) SignIns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signIns
}

// SignIn returns the account with the email address, if the password is right.
func (s *Service) SignIn(_ context.Context, email, password string) (account.Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return account.Account{}, fmt.Errorf("%w: made up", account.ErrUnavailable)
	}
	s.signIns++
	for _, a := range s.accounts {
		if strings.EqualFold(a.Email, email) && subtle.ConstantTimeCompare([]byte(password), []byte(Password)) == 1 {
			return a, nil
		}
	}
	return account.Account{}, account.ErrWrongCredentials
}

// Account returns an account.
func (s *Service) Account(_ context.Context, id string) (account.Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return account.Account{}, fmt.Errorf("%w: made up", account.ErrUnavailable)
	}
	a, ok := s.accounts[id]
	if !ok {
		return account.Account{}, account.ErrUnknown
	}
	return a, nil
}
