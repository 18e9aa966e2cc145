package caddymodule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestErrorOfAMethodIsASentence(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Only POST is allowed on this path.", problemOf(&methodNotAllowedError{"POST"}, time.Time{}).Error)
	assert.Equal(t, "Only GET and HEAD are allowed on this path.", problemOf(errMethodNotAllowed, time.Time{}).Error)
}

// A caller without an Idempotency-Key is not told to repeat it.
func TestErrorOfAnUnknownWriteNamesTheIdempotencyKeyIfThereIsOne(t *testing.T) {
	t.Parallel()
	assert.Contains(t, problemOf(&replayUnknownError{repeatable: true}, time.Time{}).Detail, "with a new timestamp and the same Idempotency-Key.")
	assert.NotContains(t, problemOf(&replayUnknownError{}, time.Time{}).Detail, "Idempotency-Key")
}
