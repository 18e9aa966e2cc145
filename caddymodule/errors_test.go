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

// Programs take a detail of a 503 for a change that may have been made. A caller without an Idempotency-Key is not told to repeat it.
func TestErrorOfAnUnknownWriteSaysThatItWasNotCarriedOut(t *testing.T) {
	t.Parallel()
	for repeatable, advice := range map[bool]string{true: "with a new timestamp and the same Idempotency-Key.", false: "with a new timestamp."} {
		p := problemOf(&replayUnknownError{repeatable}, time.Time{})
		assert.Empty(t, p.Detail)
		assert.Equal(t, "This request was not carried out: it is not known whether it was received before. Sign it again later, "+advice, p.Error)
	}
}
