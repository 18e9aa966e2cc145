package versioned_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/versioned"
)

type value struct {
	Name string `json:"name"`
}

func TestLaterFormatIsNotRead(t *testing.T) {
	t.Parallel()
	data, err := versioned.Encode(value{"Zoe"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"format":1,"name":"Zoe"}`, string(data))
	for name, test := range map[string]struct {
		data string
		want string // in the error
	}{
		"this version's":        {string(data), ""},
		"without a format":      {`{"name":"Zoe"}`, ""},
		"with an added member":  {`{"format":1,"name":"Zoe","age":7}`, ""},
		"a later one":           {`{"format":2,"name":"Zoe"}`, versioned.ErrLater.Error()},
		"a later, other one":    {`{"format":3,"name":["Zoe"]}`, versioned.ErrLater.Error()},
		"a format of no number": {`{"format":"x","name":"Zoe"}`, "/format"},
		"no JSON":               {`Zoe`, "json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got value
			err := versioned.Decode([]byte(test.data), &got)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				require.Empty(t, got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, value{"Zoe"}, got)
		})
	}
}
