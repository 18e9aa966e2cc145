package e2e_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/certtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// The timeout of a body is over when the body has arrived. The service may then take longer.
func TestSlowResponsesOutlastTheTimeoutOfTheBody(t *testing.T) {
	t.Parallel()
	const readBody, takes = 4 * time.Second, 6 * time.Second
	p := newProtected(t)
	p.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(takes):
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done(): // of a gateway that has given up
		}
	})
	o := p.options(highLimits, "")
	o.Servers = "timeouts {\n\t\t\tread_body " + readBody.String() + "\n\t\t}"
	o.Site = "gatehouse_auth shop\n\treverse_proxy " + strings.TrimPrefix(p.dataURL, "http://")
	g := gatewaytest.Start(t, o)
	for name, http2 := range map[string]bool{overHTTP1: false, overHTTP2: true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caller := p.writes
			caller.Client = protocolClient(t, http2, 0)
			a := caller.Do(t, http.MethodPost, g.URL, "/"+strings.ReplaceAll(name, " ", ""), []byte("body"))
			require.Equal(t, http.StatusOK, a.Status, a.Body)
			require.Equal(t, "done", a.Body)
		})
	}
}

// The gateway starts although the authority of a certificate accepts a question about its revocation and never answers.
func TestSilentOCSPResponderDoesNotKeepTheGatewayFromStarting(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	ca := certtest.NewCA(t)
	cert, key := ca.OCSPCert(t, "http://"+silent.Addr().String())
	secure := gatewaytest.FreeAddr(t)
	gatewaytest.Start(t, gatewaytest.Options{Extra: "https://" + secure + " {\n\ttls " + cert + " " + key + "\n\trespond served\n}"})
	conn, err := (&tls.Dialer{Config: &tls.Config{ServerName: "ocsp.test", RootCAs: ca.ClientTLS().RootCAs, MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", secure)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	asked, err := silent.Accept()
	require.NoError(t, err, "the authority was not asked")
	require.NoError(t, asked.Close())
}

// The write timeout begins when a call's result is there, behind Caddy's own timeouts, too.
func TestResultOfASlowToolCallOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	data, err := demo.Open(t.Context(), demo.Memory, demo.Options{Pace: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, data.Close()) })
	w := newEnvironment(t, data.Handler())
	o := w.options("", "")
	o.Servers = "timeouts {\n\t\t\twrite 4s\n\t\t}"
	g := w.startConnect(t, o)
	a := approved(t, w.owner(t, g), "mcp:use", "automations:run")
	for name, http2 := range map[string]bool{overHTTP1: false, overHTTP2: true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			response, err := a.raw(t.Context(), protocolClient(t, http2, 0), "automations_run",
				`{"automation_id":"overdue-reminders","dry_run":true,"wait_seconds":6}`)
			require.NoError(t, err)
			assert.Contains(t, response, "has not ended. Poll it")
			assert.Greater(t, time.Since(began), 4*time.Second)
		})
	}
}

// With shutdown_delay, Caddy waits before a process ends. A reload does not end any listener, and must not wait.
func TestReloadDoesNotWaitForTheShutdownDelay(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	o := w.options("", "")
	o.Global += "\n\tshutdown_delay 10m"
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	conn := dial(t, g.Addr, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	a, err := readResponse(conn.r, http.MethodGet)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.Status)
	g.Reload(t) // fails after a time that is much shorter
	require.NotContains(t, g.Output(), "shutdown scheduled")
	_, err = io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	if err == nil { // the connection may have been closed
		if a, err = readResponse(conn.r, http.MethodGet); err == nil {
			require.Equal(t, http.StatusOK, a.Status, a.Body)
		}
	}
	requireReady(t, g)
	g.Kill(t) // which does not wait
}
