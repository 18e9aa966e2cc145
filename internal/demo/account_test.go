package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// signIn tries an address and a password, as the gateway does: for nobody yet.
func signIn(c *as, email, password string) (int, map[string]any) {
	c.Helper()
	body, err := json.Marshal(map[string]string{"email": email, "password": password})
	require.NoError(c, err)
	w := c.do("POST", "sign-in", string(body), HeaderBusinessID, NoBusiness, HeaderAccountID, "", HeaderIdempotencyKey, "")
	return w.Code, decode(c, w)
}

func TestPeopleSignInWithTheirOwnPasswordOnly(t *testing.T) {
	t.Parallel()
	c := caller(t, shared, owner())
	names := map[string]string{}
	for _, b := range Businesses() {
		names[b.ID] = b.Name
	}
	require.Len(t, Accounts(), 6)
	for i, a := range Accounts() {
		other := Accounts()[(i+1)%len(Accounts())]
		for _, wrong := range []string{other.Password, strings.ToUpper(a.Password), a.Password + " ", "x"} {
			status, answer := signIn(c, a.Email, wrong)
			require.Equal(t, http.StatusUnauthorized, status)
			require.Equal(t, map[string]any{"error": "The e-mail address or the password is wrong.", "code": "INVALID_CREDENTIALS"}, answer)
		}
		status, answer := signIn(c, "  "+strings.ToUpper(a.Email)+" ", a.Password)
		if i >= 4 { // of the inactive business
			require.Equal(t, http.StatusUnauthorized, status)
			require.Equal(t, "INVALID_CREDENTIALS", answer["code"])
			c.refused(http.StatusNotFound, "NOT_FOUND", "GET", "accounts/"+a.ID, "", HeaderBusinessID, NoBusiness, HeaderAccountID, "")
			continue
		}
		require.Equal(t, http.StatusOK, status)
		account := record(t, answer, "account")
		require.Equal(t, a.ID, account["id"])
		require.Equal(t, a.Email, account["email"])
		require.Equal(t, a.Name, account["name"])
		require.Equal(t, a.Role, account["role"])
		require.Equal(t, names[a.BusinessID], record(t, account, "business")["name"])
		require.NotContains(t, fmt.Sprint(answer), "argon2")
		require.Equal(t, answer, c.ok("GET", "accounts/"+a.ID, "", HeaderBusinessID, NoBusiness, HeaderAccountID, ""))
	}
}

func TestSignInDoesNotRevealAccounts(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	setStatus(t, s, member(), "disabled")
	c := caller(t, s, owner())
	_, want := signIn(c, owner().Email, "wrong")
	for _, attempt := range [][2]string{
		{"nobody@fernhollow.example.com", "wrong"},
		{member().Email, member().Password},
		{member().Email, "wrong"},
		{"not an address", "x"},
		{"' OR 1=1 --", "x"},
		{"%", "x"},
	} {
		status, answer := signIn(c, attempt[0], attempt[1])
		require.Equal(t, http.StatusUnauthorized, status)
		require.Equal(t, want, answer)
	}
	c.refused(http.StatusNotFound, "NOT_FOUND", "GET", "accounts/"+member().ID, "", HeaderAccountID, "")
	c.refused(http.StatusNotFound, "NOT_FOUND", "GET", "accounts/nobody", "", HeaderAccountID, "")
	setStatus(t, s, member(), "active")
	status, _ := signIn(c, member().Email, member().Password)
	require.Equal(t, http.StatusOK, status)
}

func TestUnknownAddressesCostTheSameWork(t *testing.T) {
	t.Parallel()
	p := newPasswords()
	hash := hashPassword("right")
	require.True(t, strings.HasPrefix(p.nobody, passwordPrefix()), "the same parameters")
	require.Len(t, p.nobody, len(hash))
	right, err := p.check(t.Context(), hash, "right")
	require.NoError(t, err)
	require.True(t, right)
	for _, password := range []string{"", "wrong", "right"} {
		right, err := p.check(t.Context(), "", password)
		require.NoError(t, err)
		require.False(t, right)
	}
	// The hash of nobody takes a slot and the time like any other: while all slots
	// are taken, it waits as well.
	for range passwordChecks {
		p.slots <- struct{}{}
	}
	p.patient = time.Millisecond
	for _, h := range []string{"", hash} {
		_, err := p.check(t.Context(), h, "right")
		var busy *httpError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, http.StatusTooManyRequests, busy.Status)
		require.Positive(t, busy.RetryAfter)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.patient = time.Hour
	_, err = p.check(ctx, hash, "right")
	require.ErrorIs(t, err, context.Canceled)
	<-p.slots
	_, err = p.check(t.Context(), "$2y$10$something-else", "x")
	require.ErrorContains(t, err, "not one of ours")
	require.NotContains(t, err.Error(), "something-else")
}

func TestPasswordsAreStoredAsSaltedArgon2id(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, h := range texts(t, shared.store, "SELECT password_hash FROM accounts") {
		require.Regexp(t, `^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`, h)
		seen[strings.Split(h, "$")[4]] = true
		for _, a := range Accounts() {
			require.NotContains(t, h, a.Password)
		}
	}
	require.Len(t, seen, len(Accounts()))
}

func TestConcurrentSignInsAreAllAnswered(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	s.passwords.patient = patience
	c := caller(t, s, owner())
	var codes [12]int
	var group sync.WaitGroup
	for i := range codes {
		group.Go(func() {
			password := owner().Password
			if i%2 == 1 {
				password = "wrong"
			}
			codes[i], _ = signIn(c, owner().Email, password)
		})
	}
	group.Wait()
	for i, code := range codes {
		require.Equal(t, []int{http.StatusOK, http.StatusUnauthorized}[i%2], code)
	}
	require.Empty(t, s.passwords.slots)
}
