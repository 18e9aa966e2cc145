package upstream_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestZstdIsDecodedUpToTheLimit(t *testing.T) {
	t.Parallel()
	const block = 128 << 10
	var records strings.Builder
	for i := 0; records.Len() < 5*block; i++ {
		fmt.Fprintf(&records, `{"id":%d,"name":"%x"},`, i, i*i*7919)
	}
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBestCompression} {
		for _, size := range []int{0, 1, 1000, 32 << 10, block - 1, block, block + 1, 2*block + 100, 5 * block} {
			body := records.String()[:size]
			var sent bytes.Buffer
			w, err := zstd.NewWriter(&sent, zstd.WithEncoderLevel(level))
			require.NoError(t, err)
			for _, part := range []string{body[:size/2], body[size/2:]} {
				_, err = w.Write([]byte(part))
				require.NoError(t, err)
				require.NoError(t, w.Flush())
			}
			require.NoError(t, w.Close())
			decode, err := upstream.Decode(&http.Response{Header: http.Header{"Content-Encoding": {"zstd"}}})
			require.NoError(t, err)
			for _, limit := range []int{0, size / 3, size - 1, size, size + 1, 10 * block} {
				got, err := decode(sent.Bytes(), int64(limit))
				if limit < size {
					require.ErrorIs(t, err, upstream.ErrResponseTooLarge, "%d bytes, limit %d", size, limit)
				} else {
					require.NoError(t, err, "%d bytes, limit %d", size, limit)
					require.Equal(t, body, string(got))
				}
			}
			_, err = decode(sent.Bytes()[:sent.Len()-3], int64(size))
			require.Error(t, err)
			require.NotErrorIs(t, err, upstream.ErrResponseTooLarge)
		}
	}
}
