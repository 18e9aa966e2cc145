package oauth_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

const racers = 20

// atOnce calls use from several goroutines at the same moment.
func atOnce[T any](n int, use func(i int) T) []T {
	results := make([]T, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			results[i] = use(i)
		})
	}
	close(start)
	wg.Wait()
	return results
}

func TestConcurrentCodeReuseEndsTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenge, nil)
	var won []oauthtest.Tokens
	for _, r := range atOnce(racers, func(int) oauthtest.Tokens { return c.Exchange(code, verifier, nil) }) {
		if r.Status == http.StatusOK {
			won = append(won, r)
			continue
		}
		require.Equal(t, http.StatusBadRequest, r.Status)
		require.Equal(t, "invalid_grant", r.Error)
	}
	require.Len(t, won, 1)
	_, err := s.Authenticate(ctx, won[0].Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken, "the replays have ended the connection")
	require.Equal(t, "invalid_grant", c.Refresh(won[0].Refresh, nil).Error)
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Empty(t, grants)
	require.ElementsMatch(t, []string{"approved", "started", replayed}, recorded(t, s))
}

func TestConcurrentRefreshesShareOneSuccessor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	successors, access, answered := map[string]bool{}, map[string]bool{}, 0
	for _, r := range atOnce(racers, func(int) oauthtest.Tokens { return c.Refresh(tokens.Refresh, nil) }) {
		if r.Status == http.StatusOK {
			successors[r.Refresh], access[r.Access] = true, true
			answered++
			continue
		}
		require.Equal(t, "invalid_grant", r.Error)
	}
	require.Len(t, successors, 1, "one winner, whatever the others were told")
	require.Len(t, access, 1)
	require.Equal(t, 1+oauth.MaxRepeats, answered)
	for token := range access {
		_, err := s.Authenticate(ctx, token)
		require.NoError(t, err)
	}
	for token := range successors {
		require.Equal(t, http.StatusOK, c.Refresh(token, nil).Status, "and the connection lives on")
	}
	require.Equal(t, []string{"approved", "started"}, recorded(t, s))
}

func TestConcurrentApprovalsReturnOneCode(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	id := c.Request(challenge, nil)
	redirects := map[string]bool{}
	var decided atomic.Int32
	for _, r := range atOnce(racers, func(int) string {
		decision, err := s.Approve(context.Background(), id, oauthtest.Owner(), scopes(t, "mcp:read"))
		if err != nil {
			t.Errorf("approving: %v", err)
		}
		if decision.Decided {
			decided.Add(1)
		}
		return decision.Redirect
	}) {
		redirects[r] = true
	}
	require.Len(t, redirects, 1)
	require.Equal(t, int32(1), decided.Load())
	require.Equal(t, []string{"approved"}, recorded(t, s))
	for r := range redirects {
		require.Equal(t, http.StatusOK, c.Exchange(oauthtest.CodeOf(t, r), verifier, nil).Status)
	}
}

func TestConcurrentApprovalAndDenialHaveOneWinner(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	_, challenge := oauthtest.PKCE()
	for range 5 {
		id := c.Request(challenge, nil)
		var approved, denied atomic.Int32
		atOnce(racers, func(i int) error {
			var err error
			if i%2 == 0 {
				if _, err = s.Approve(context.Background(), id, oauthtest.Owner(), scopes(t, "mcp:read")); err == nil {
					approved.Add(1)
				}
			} else if _, err = s.Deny(context.Background(), id, oauthtest.Owner()); err == nil {
				denied.Add(1)
			}
			if err != nil && !errors.Is(err, oauth.ErrNoRequest) {
				t.Errorf("deciding: %v", err)
			}
			return err
		})
		require.Equal(t, int32(racers/2), approved.Load()+denied.Load())
		require.True(t, approved.Load() == 0 || denied.Load() == 0, "%d and %d", approved.Load(), denied.Load())
	}
}

func TestRevocationWinsOverConcurrentRefresh(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	for range 5 {
		tokens := c.Connect(oauthtest.Owner(), "")
		grants, err := s.Grants(ctx, "biz-1")
		require.NoError(t, err)
		require.Len(t, grants, 1)
		answers := atOnce(racers, func(i int) oauthtest.Tokens {
			if i == racers/2 {
				if err := s.Revoke(ctx, grants[0].ID, oauthtest.Owner()); err != nil {
					t.Errorf("revoking: %v", err)
				}
				return oauthtest.Tokens{}
			}
			if i%2 == 0 {
				_, _ = s.Authenticate(ctx, tokens.Access)
				return oauthtest.Tokens{}
			}
			return c.Refresh(tokens.Refresh, nil)
		})
		for _, a := range append(answers, tokens) {
			_, err := s.Authenticate(ctx, a.Access)
			require.ErrorIs(t, err, oauth.ErrInvalidToken)
			if a.Refresh != "" {
				require.Equal(t, "invalid_grant", c.Refresh(a.Refresh, nil).Error)
			}
		}
		grants, err = s.Grants(ctx, "biz-1")
		require.NoError(t, err)
		require.Empty(t, grants)
	}
}

func TestPreviousRefreshTokenIsValidForTwoMinutes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := newClock(t)
	s := newServer(t, withClock(now))
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:write")

	second := c.Refresh(first.Refresh, nil)
	require.Equal(t, http.StatusOK, second.Status)
	now.Add(oauth.RefreshGrace - 20*time.Second)
	again := c.Refresh(first.Refresh, nil)
	require.Equal(t, http.StatusOK, again.Status, "its answer was lost on the way")
	require.Equal(t, second.Refresh, again.Refresh)
	require.Equal(t, second.Access, again.Access)
	require.LessOrEqual(t, again.ExpiresIn, second.ExpiresIn-int(oauth.RefreshGrace/time.Second)+20)
	narrow := c.Refresh(first.Refresh, url.Values{"scope": {"mcp:read"}})
	require.Equal(t, second.Refresh, narrow.Refresh)
	require.NotEqual(t, second.Access, narrow.Access)
	grant, err := s.Authenticate(ctx, narrow.Access)
	require.NoError(t, err)
	require.Equal(t, "mcp:read", grant.Scopes.String())

	for range oauth.MaxRepeats - 2 {
		require.Equal(t, http.StatusOK, c.Refresh(first.Refresh, nil).Status)
	}
	require.Equal(t, "invalid_grant", c.Refresh(first.Refresh, nil).Error, "but not for ever more answers")
	third := c.Refresh(second.Refresh, nil)
	require.Equal(t, http.StatusOK, third.Status, "which does not end the connection")

	// A client that goes on with the answer it got: nothing of it is old.
	now.Add(oauth.AccessLifetime)
	fourth := c.Refresh(third.Refresh, nil)
	require.Equal(t, http.StatusOK, fourth.Status)
	now.Add(oauth.RefreshGrace + time.Millisecond)
	require.Equal(t, []string{"approved", "started"}, recorded(t, s))
	require.Equal(t, "invalid_grant", c.Refresh(third.Refresh, nil).Error)
	require.Equal(t, "invalid_grant", c.Refresh(fourth.Refresh, nil).Error, "the use of an old one has ended the connection")
	_, err = s.Authenticate(ctx, fourth.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
	require.Equal(t, []string{"approved", "started", reused}, recorded(t, s))
}

func TestRepeatedRefreshDoesNotRestoreRevokedAccessToken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:write")
	second := c.Refresh(first.Refresh, nil)
	require.Equal(t, http.StatusOK, c.Revoke(second.Access))
	for _, asked := range []string{"", "contacts:read", ""} {
		again := c.Refresh(first.Refresh, url.Values{"scope": {asked}})
		require.Equal(t, second.Refresh, again.Refresh)
		_, err := s.Authenticate(t.Context(), second.Access)
		require.ErrorIs(t, err, oauth.ErrInvalidToken)
	}
	third := c.Refresh(second.Refresh, nil)
	_, err := s.Authenticate(t.Context(), third.Access)
	require.NoError(t, err, "the connection goes on")
	for range 3 {
		require.Equal(t, http.StatusOK, c.Refresh(second.Refresh, nil).Status)
		_, err = s.Authenticate(t.Context(), second.Access)
		require.ErrorIs(t, err, oauth.ErrInvalidToken)
	}
}

func TestReuseOfAnOldRefreshTokenEndsTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	last := first
	for range 5 {
		last = c.Refresh(last.Refresh, nil)
		require.Equal(t, http.StatusOK, last.Status)
	}
	stolen := *c
	stolen.ID = "somebody-else"
	require.NotEqual(t, http.StatusOK, stolen.Refresh(first.Refresh, nil).Status)
	_, err := s.Authenticate(ctx, last.Access)
	require.NoError(t, err, "another client's use says nothing")
	require.Equal(t, "invalid_grant", c.Refresh(first.Refresh, nil).Error)
	_, err = s.Authenticate(ctx, last.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
	require.Equal(t, []string{"approved", "started", reused}, recorded(t, s))
}

func TestAccessTokensPerConnectionAreLimited(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := newClock(t)
	s := newServer(t, withClock(now))
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	all := []string{tokens.Access}
	for range oauth.MaxAccessTokens {
		now.Add(time.Second)
		tokens = c.Refresh(tokens.Refresh, nil)
		require.Equal(t, http.StatusOK, tokens.Status)
		all = append(all, tokens.Access)
	}
	for i, token := range all {
		_, err := s.Authenticate(ctx, token)
		require.Equal(t, i == 0, err != nil, "only the oldest has ended")
	}
}
