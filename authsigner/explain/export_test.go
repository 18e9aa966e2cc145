package explain

import (
	"context"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// MaxTried is maxTried, for tests.
const MaxTried = maxTried

// Tried returns how many HMACs the search computes.
func (a *Attempt) Tried(cred *authsigner.Credential, now time.Time) int {
	s := newSearch(a, cred, now)
	s.run(context.Background())
	return s.tried
}
