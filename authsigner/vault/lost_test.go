package vault_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// The responses to the requests of a change are lost in turn.
func TestLostResponseNeitherRepeatsNorHidesAChange(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("KV version %d", version), func(t *testing.T) {
			t.Parallel()
			var lossy *netfault.Handler
			b := newBench(t, setup{
				policy: vaulttest.ManagePolicy,
				change: func(_ *vaulttest.Server, o *vault.Options) { o.Mount = map[int]string{1: "kv1", 2: "kv"}[version] },
				proxy: func(next http.Handler) http.Handler {
					lossy = netfault.NewHandler(next)
					return lossy
				},
			})
			business := authsigner.IssueOptions{BusinessID: "biz_1", BusinessName: "Bakery", BusinessSlug: "bakery"}
			for n, lose := range netfault.LoseEach(t, lossy) {
				ctx := t.Context()
				issue := business
				issue.Attempt = fmt.Sprintf("attempt %d", n)
				var issued *authsigner.Credential
				lose(func() (err error) { issued, err = authsigner.Issue(ctx, b, issue); return err })
				found, err := b.Lookup(ctx, issued.PublicKey)
				require.NoError(t, err)
				require.Equal(t, issued.PrivateKey, found.PrivateKey)
				_, err = authsigner.Issue(ctx, b, issue)
				require.ErrorIs(t, err, authsigner.ErrKeyExists, "the attempt has issued its key")

				var rotated *authsigner.Credential
				rotate := func() (err error) {
					rotated, err = authsigner.RotateVersion(ctx, b, issued.PublicKey, issued.Version(), time.Hour, time.Now())
					return err
				}
				lose(rotate)
				found, err = b.Lookup(ctx, issued.PublicKey)
				require.NoError(t, err)
				require.Equal(t, rotated.PrivateKey, found.PrivateKey)
				require.Equal(t, issued.PrivateKey, found.PreviousPrivateKey)
				require.ErrorIs(t, rotate(), authsigner.ErrVersionMismatch)

				lose(func() error { return authsigner.Revoke(ctx, b, issued.PublicKey) })
				b.requireUnknown(t, issued.PublicKey)
			}
		})
	}
}

func TestChangeWithoutAnyResponseIsNotReportedAsFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{policy: vaulttest.ManagePolicy, proxy: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet || r.URL.Path == "/v1/auth/approle/login" {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
	}})
	b.store(t, testKey, nil)
	err := authsigner.Revoke(t.Context(), b, testKey)
	require.ErrorIs(t, err, authsigner.ErrOutcomeUnknown)
	require.ErrorIs(t, err, authsigner.ErrUnavailable)
	b.requireUnknown(t, testKey)

	b.Kill(t)
	err = authsigner.Revoke(t.Context(), b, testKey)
	require.ErrorIs(t, err, authsigner.ErrUnavailable)
	require.NotErrorIs(t, err, authsigner.ErrOutcomeUnknown, "no change was sent")
}
