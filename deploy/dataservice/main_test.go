package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDataServiceServesTheBusinessesThatItNamesAndStops(t *testing.T) {
	t.Parallel()
	logRead, logWrite := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := run(ctx, "127.0.0.1:0", ":memory:", slog.New(slog.NewJSONHandler(logWrite, nil)))
		_ = logWrite.Close()
		done <- err
	}()

	var ids []string
	address := ""
	lines := bufio.NewScanner(logRead)
	for address == "" && lines.Scan() {
		var line struct{ Msg, ID, Address string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		if line.Msg == "business" {
			ids = append(ids, line.ID)
		}
		address = line.Address
	}
	require.NotEmpty(t, address)
	require.NotEmpty(t, ids)
	go func() { _, _ = io.Copy(io.Discard, logRead) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, id := range ids {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/business", nil)
		require.NoError(t, err)
		req.Header.Set("X-Business-Id", id)
		res, err := client.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, http.StatusOK, res.StatusCode)
		assert.Contains(t, string(body), id)
	}

	cancel()
	require.NoError(t, <-done)
}

func TestTheDataServiceSaysWhyItCannotServe(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), "127.0.0.1:no-port", ":memory:", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "listening")
	err = run(t.Context(), "127.0.0.1:0", t.TempDir()+"/missing/records.db", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "opening the demo data")
}
