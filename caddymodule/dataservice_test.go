package caddymodule

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResponseHeadersAreBoundedBeforeHealthChecksBegin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ handler, want string }{
		"no transport":      {`{}`, `{"transport":{"max_response_header_size":65536,"protocol":"http"}}`},
		"null":              {`{"transport":null}`, `{"transport":{"max_response_header_size":65536,"protocol":"http"}}`},
		"other settings":    {`{"transport":{"protocol":"http","tls":{}}}`, `{"transport":{"max_response_header_size":65536,"protocol":"http","tls":{}}}`},
		"another spelling":  {`{"Transport":{"protocol":"http","tls":{}}}`, `{"Transport":{"max_response_header_size":65536,"protocol":"http","tls":{}}}`},
		"a bound":           {`{"transport":{"max_response_header_size":1,"protocol":"http"}}`, `{"transport":{"max_response_header_size":1,"protocol":"http"}}`},
		"another transport": {`{"transport":{"protocol":"fastcgi"}}`, `{"transport":{"protocol":"fastcgi"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := json.RawMessage(c.handler)
			require.NoError(t, boundResponseHeader(&raw))
			assert.JSONEq(t, c.want, string(raw))
		})
	}
}
