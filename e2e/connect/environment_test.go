package connect_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// patience is how long tests wait for a condition.
const patience = time.Minute

// environment is a gateway with the connection server and its environment.
type environment struct {
	*gatewaytest.Gateway

	url           string // the issuer: what clients and browsers call
	caFile        string // of a gateway that serves https
	owner, member demo.Account
}

// options of an environment.
type options struct {
	secure bool   // serve https with a certificate of Caddy's own
	token  string // a file with an access token, which a proxy in front of the gateway adds to requests to /mcp
	tags   string // further build tags
	env    []string
}

// sharedDemo is the demo data service of all tests.
var sharedDemo = sync.OnceValues(func() (*demo.Service, error) {
	return demo.Open(context.Background(), demo.Memory, demo.Options{})
})

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	return start(t, options{})
}

func start(t *testing.T, o options) *environment {
	t.Helper()
	service, err := sharedDemo()
	require.NoError(t, err)
	data := httptest.NewServer(service.Handler())
	t.Cleanup(data.Close)
	g := gatewaytest.Options{Tags: o.tags, Env: o.env}
	w := &environment{Gateway: gatewaytest.New(t, g)}
	for _, a := range demo.Accounts() {
		switch {
		case a.BusinessID != demo.Accounts()[0].BusinessID:
		case a.Role == demo.RoleOwner:
			w.owner = a
		default:
			w.member = a
		}
	}
	require.NotEmpty(t, w.owner.Email)
	require.NotEmpty(t, w.member.Email)

	_, port, err := net.SplitHostPort(w.Addr)
	require.NoError(t, err)
	w.url = "http://localhost:" + port
	if o.secure {
		g.CA, g.Host, w.url = true, "https://localhost", "https://localhost:"+port
	}
	if o.token != "" {
		_, proxyPort, err := net.SplitHostPort(gatewaytest.FreeAddr(t))
		require.NoError(t, err)
		w.url = "http://localhost:" + proxyPort // also the issuer
		g.Extra = fmt.Sprintf("http://:%s {\n\trequest_header /mcp Authorization \"Bearer {file.%s}\"\n\t"+
			"reverse_proxy %s {\n\t\tflush_interval -1\n\t}\n}", proxyPort, o.token, w.Addr)
	}
	keys := filepath.Join(w.Dir, "keys.json")
	store, err := file.Open(keys, file.Options{Create: true})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	g.Global = fmt.Sprintf("gatehouse {\n\t\tredis %s {\n\t\t\ttimeout 5s\n\t\t}\n\t\tcredentials file %s\n\t}", redistest.Start(t).URL(), keys)
	g.Site = fmt.Sprintf("gatehouse_health\n\tgatehouse_connect {\n\t\tissuer %s\n\t\tupstream %[2]s\n\t\ttimeout 1m\n\t\tmanage_keys\n\t\t%[3]s\n\t}\n\tgatehouse_api {\n\t\tupstream %[2]s\n\t\tdocs_path /docs\n\t}",
		w.url, data.URL, writeBrand(t, w.Dir))
	w.Write(t, g.Caddyfile(w.Addr, strings.TrimPrefix(w.AdminURL, "http://")))
	w.Run(t)
	if o.secure {
		w.caFile = w.CAFile()
		w.Roots(t, w.Addr, "localhost")
	}
	return w
}

// writeBrand writes a logo and returns options of a platform.
func writeBrand(t *testing.T, dir string) string {
	t.Helper()
	symbol := image.NewNRGBA(image.Rect(0, 0, 96, 96)) // a quarter of a disc
	for x := range 96 {
		for y := range 96 {
			if x*x+y*y < 96*96 {
				symbol.Set(x, y, color.NRGBA{R: 0x3d, G: 0x4d, B: 0xb7, A: 0xff})
			}
		}
	}
	var content bytes.Buffer
	require.NoError(t, png.Encode(&content, symbol))
	logo := filepath.Join(dir, "logo.png")
	require.NoError(t, os.WriteFile(logo, content.Bytes(), 0o600))
	return "name \"Harbour Platform\"\n\t\tlogo " + logo + "\n\t\taccent_color \"#3d4db7\"\n\t\thome_page\n\t\t" +
		"support_url mailto:help@harbour.example\n\t\tprivacy_url https://harbour.example/privacy\n\t\tterms_url https://harbour.example/terms"
}

// env returns the drivers' variables: the gateway and its accounts.
func (w *environment) env() []string {
	env := []string{
		"GATEHOUSE_URL=" + w.url,
		"GATEHOUSE_EMAIL=" + w.owner.Email, "GATEHOUSE_PASSWORD=" + w.owner.Password,
		"MEMBER_EMAIL=" + w.member.Email, "MEMBER_PASSWORD=" + w.member.Password,
	}
	if w.caFile != "" {
		env = append(env, "NODE_EXTRA_CA_CERTS="+w.caFile)
	}
	return env
}

// client has a timeout and does not follow redirects.
func client() *http.Client {
	return &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
