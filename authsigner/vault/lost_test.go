package vault_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/losttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// newLossyBench is a bench whose source reaches Vault through a handler that loses responses.
func newLossyBench(t *testing.T, version int) (*bench, *losttest.Handler) {
	t.Helper()
	var lossy *losttest.Handler
	b := newBench(t, setup{policy: managePolicy, change: func(s *vaulttest.Server, o *vault.Options) {
		target, err := url.Parse(s.Addr)
		require.NoError(t, err)
		lossy = losttest.NewHandler(&httputil.ReverseProxy{
			Transport: &http.Transport{DisableKeepAlives: true},
			Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		})
		server := httptest.NewServer(lossy)
		t.Cleanup(server.Close)
		o.Address = server.URL
		if version == 1 {
			o.Mount = "kv1"
		}
	}})
	return b, lossy
}

// Whichever response is lost, a change is made once, and what the source says of it is so.
func TestALostReplyMakesNoChangeTwiceAndNoneInSecret(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("KV version %d", version), func(t *testing.T) {
			t.Parallel()
			b, lossy := newLossyBench(t, version)
			ctx := t.Context()
			business := authsigner.IssueOptions{BusinessID: "biz_1", Name: "Bakery", Slug: "bakery"}
			for n, lost := 1, true; lost; n++ {
				require.Less(t, n, 20)
				lost = false
				lose := func(change func() error) error {
					lossy.Lose(n)
					err := change()
					lost = lost || lossy.Replies() >= n
					lossy.Lose(0)
					return err
				}
				issue := business
				issue.Attempt = fmt.Sprintf("attempt %d", n)
				var issued *authsigner.Credential
				require.NoError(t, lose(func() (err error) { issued, err = authsigner.Issue(ctx, b, issue); return err }))
				found, err := b.Lookup(ctx, issued.PublicKey)
				require.NoError(t, err)
				require.Equal(t, issued.PrivateKey, found.PrivateKey)
				_, err = authsigner.Issue(ctx, b, issue)
				require.ErrorIs(t, err, authsigner.ErrKeyExists, "the attempt has its key")

				var rotated *authsigner.Credential
				rotate := func() (err error) {
					rotated, err = authsigner.RotateVersion(ctx, b, issued.PublicKey, issued.Version(), time.Hour, time.Now())
					return err
				}
				require.NoError(t, lose(rotate))
				found, err = b.Lookup(ctx, issued.PublicKey)
				require.NoError(t, err)
				require.Equal(t, rotated.PrivateKey, found.PrivateKey)
				require.Equal(t, issued.PrivateKey, found.PreviousPrivateKey)
				require.ErrorIs(t, rotate(), authsigner.ErrVersionMismatch)

				require.NoError(t, lose(func() error { return authsigner.Revoke(ctx, b, issued.PublicKey) }))
				b.requireUnknown(t, issued.PublicKey)
			}
		})
	}
}

// Where the replies to the repetitions are lost as well, nobody says that nothing was changed.
func TestAChangeOfWhichEveryReplyIsLostIsNotSaidToHaveFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{policy: managePolicy, absent: true, change: func(s *vaulttest.Server, o *vault.Options) {
		target, err := url.Parse(s.Addr)
		require.NoError(t, err)
		proxy := &httputil.ReverseProxy{
			Transport: &http.Transport{DisableKeepAlives: true},
			Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet || r.URL.Path == "/v1/auth/approle/login" {
				proxy.ServeHTTP(w, r)
				return
			}
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}))
		t.Cleanup(server.Close)
		o.Address = server.URL
	}})
	b.waitReady(t)
	b.store(t, testKey, nil)
	err := authsigner.Revoke(t.Context(), b, testKey)
	require.ErrorIs(t, err, authsigner.ErrOutcomeUnknown)
	require.ErrorIs(t, err, authsigner.ErrUnavailable)
	b.requireUnknown(t, testKey)

	b.Kill(t)
	err = authsigner.Revoke(t.Context(), b, testKey)
	require.ErrorIs(t, err, authsigner.ErrUnavailable)
	require.NotErrorIs(t, err, authsigner.ErrOutcomeUnknown, "nothing was sent that changes anything")
}
