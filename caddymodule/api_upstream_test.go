package caddymodule

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The memory of a large response is counted once until its caller has read it. Until then, there is one copy of it.
func TestCheckedResponseIsHeldOnce(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	text := bytes.Repeat([]byte("a"), size)
	for name, room := range map[string]int{"with other names": 3 * size, "with the same": size + 64} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, checked := &upstream.Response{Body: text}, new(bytes.Buffer)
			checked.Grow(room)
			checked.Write(text)
			compact(got, checked)
			require.Nil(t, got.Body)
			require.Equal(t, text, checked.Bytes())
			require.LessOrEqual(t, checked.Cap(), size+size/4)
		})
	}
	got, checked := &upstream.Response{Body: text[:9]}, bytes.NewBuffer(make([]byte, 0, 999))
	compact(got, checked)
	require.NotNil(t, got.Body)
	require.Equal(t, 999, checked.Cap(), "small ones are used again")
}

// A browser asks for a password only if it is told to.
func TestChallengeOfAnotherHandlerStays(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{`Basic realm="restricted"`: `Basic realm="restricted"`, "": `HMAC-SHA256 realm="gatehouse", headers="X-Public-Key X-Timestamp X-Signature"`} {
		w := httptest.NewRecorder()
		if set != "" {
			w.Header().Set("Www-Authenticate", set)
		}
		problem{Status: http.StatusUnauthorized}.write(w, "", "")
		require.Equal(t, []string{want}, w.Header().Values("Www-Authenticate"))
	}
}
