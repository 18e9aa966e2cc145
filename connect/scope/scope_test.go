package scope_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
)

func parse(t testing.TB, s string) scope.Set {
	t.Helper()
	set, err := connecttest.Areas(t).Parse(s)
	require.NoError(t, err)
	return set
}

func TestScopesAllowWhatTheyCover(t *testing.T) {
	t.Parallel()
	const (
		read = "mcp:read business:read contacts:read conversations:read appointments:read receptionist:read sales:read " +
			"automations:read objects:read"
		write = read + " mcp:write business:write contacts:write receptionist:write objects:write"
	)
	covered := map[string]string{
		"mcp:read": read, "mcp:write": write, "mcp:use": write + " mcp:use automations:run",
		"business:read": "business:read", "business:write": "business:read business:write",
		"contacts:read": "contacts:read", "contacts:write": "contacts:read contacts:write",
		"conversations:read": "conversations:read", "appointments:read": "appointments:read",
		"receptionist:read": "receptionist:read", "receptionist:write": "receptionist:read receptionist:write",
		"sales:read": "sales:read", "automations:read": "automations:read", "automations:run": "automations:read automations:run",
		"objects:read": "objects:read", "objects:write": "objects:read objects:write",
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(covered)), scope.Names(connecttest.Areas(t)))
	require.Equal(t, []string{"mcp:read", "mcp:write", "mcp:use"}, connecttest.Areas(t).Published())
	require.Equal(t, scope.Read, connecttest.Areas(t).Default().String())
	require.Equal(t, scope.Use, connecttest.Areas(t).Everything().String())
	for name, want := range covered {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := parse(t, name)
			allowed := slices.DeleteFunc(scope.Names(connecttest.Areas(t)), func(n string) bool { return !set.Allows(n) })
			require.ElementsMatch(t, strings.Fields(want), allowed)
			for _, a := range connecttest.Areas(t).List() {
				for _, verb := range scope.Verbs() {
					assert.Equal(t, slices.Contains(allowed, a.Name+":"+verb), set.Includes(a, verb), "%s:%s", a.Name, verb)
				}
			}
		})
	}
}

func TestSetsAreCanonical(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                   "",
		"   ":                                "",
		"mcp:read":                           "mcp:read",
		" mcp:write  mcp:read ":              "mcp:read mcp:write",
		"mcp:read " + "mcp:read":             "mcp:read",
		"objects:write contacts:read":        "contacts:read objects:write",
		"mcp:use contacts:read mcp:use":      "contacts:read mcp:use",
		strings.Repeat("sales:read ", 10000): "sales:read",
	} {
		set := parse(t, in)
		assert.Equal(t, want, set.String())
		assert.Equal(t, want == "", set.IsZero())
		assert.Equal(t, set, parse(t, set.String()), "reading it back gives the same set")
		assert.True(t, slices.IsSorted(set.Names()))
	}
	assert.True(t, parse(t, "").IsZero())
	assert.False(t, scope.Set{}.Allows(scope.Read))
	assert.False(t, parse(t, "mcp:use").Allows(""))
	assert.False(t, parse(t, "mcp:use").Allows("mcp:admin"))
}

func TestUnknownScopeIsNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"mcp", "mcp:", ":read", "mcp:run", "MCP:read", "mcp:Read", "contacts", "contacts:run", "contacts:delete",
		"conversations:write", "sales:write", "automations:write", "contacts:read:write", "*", "mcp:*", "mcp:read,mcp:write",
		"mcp:read\tmcp:write", "mcp:read\n", "contacts:reаd", // the last with a Cyrillic а
	} {
		_, err := connecttest.Areas(t).Parse("mcp:read " + name)
		var unknown *scope.UnknownError
		require.ErrorAs(t, err, &unknown, name)
		assert.Equal(t, name, unknown.Name)
	}
	_, err := connecttest.Areas(t).Parse(strings.Repeat("x\"\\é", 1000))
	assert.Less(t, len(err.Error()), 100)
	assert.NotContains(t, err.Error(), `"`)
	assert.NotContains(t, err.Error(), `\`)
}

// A refresh may request any scopes that the grant contains.
func TestContains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have, want string
		ok         bool
	}{
		{"mcp:read", "", true},
		{"mcp:read", "mcp:read", true},
		{"mcp:write", "mcp:read contacts:write", true},
		{"mcp:read", "mcp:write", false},
		{"mcp:write", "mcp:read", true},
		{"mcp:write", "mcp:use", false},
		{"mcp:use", "mcp:write", true},
		{"mcp:read", "mcp:read contacts:write", false},
		{"mcp:write", "automations:run", false},
		{"mcp:use", "automations:run mcp:write", true},
		{"contacts:write", "contacts:read", true},
		{"contacts:read", "contacts:write", false},
		{"contacts:write", "objects:read", false},
		{"contacts:read", "mcp:read", false},
		{"", "mcp:read", false},
	} {
		assert.Equal(t, c.ok, parse(t, c.have).Contains(parse(t, c.want)), "%+v", c)
	}
}

// A published scope may cover further areas in a later version, but an earlier approval does not.
func TestPinnedScopeCoversOnlyItsAreas(t *testing.T) {
	t.Parallel()
	for _, have := range []string{
		"", "mcp:use", "mcp:write", "mcp:read", "mcp:read mcp:write", "contacts:write mcp:read", "automations:run mcp:write",
		"contacts:read contacts:write", "automations:run",
	} {
		set := parse(t, have)
		assert.Equal(t, set, connecttest.Areas(t).Unpin(set.Pin()))
	}
	// mcp:use covered two areas when it was approved.
	older := connecttest.Areas(t).Unpin("contacts:read contacts:write mcp:use of:another sales:read")
	assert.Equal(t, "contacts:read contacts:write sales:read", older.String())
	require.True(t, older.Allows("contacts:write"))
	assert.False(t, older.Allows("objects:read"))
	assert.True(t, connecttest.Areas(t).Unpin("mcp:use").IsZero(), "it names no areas")
	assert.False(t, connecttest.Areas(t).Unpin("mcp:use").Allows("contacts:read"))
}

func TestNarrowKeepsOnlyWhatIsApproved(t *testing.T) {
	t.Parallel()
	type keep func(scope.Area, string) bool
	reading := func(_ scope.Area, verb string) bool { return verb == scope.VerbRead }
	only := func(names ...string) keep {
		return func(a scope.Area, verb string) bool { return slices.Contains(names, a.Scope(verb)) }
	}
	without := func(names ...string) keep {
		return func(a scope.Area, verb string) bool { return !slices.Contains(names, a.Scope(verb)) }
	}
	all, none := without(), only()
	for _, c := range []struct {
		have string
		keep keep
		want string
	}{
		{"mcp:use", all, "mcp:use"},
		{"mcp:read mcp:write", all, "mcp:read mcp:write"},
		{"mcp:use", reading, "mcp:read"},
		{"mcp:write", reading, "mcp:read"},
		{"mcp:read mcp:write", reading, "mcp:read"},
		{"mcp:use", without("automations:run"), "mcp:write"},
		{"mcp:use", without("contacts:write", "automations:run"), "business:write mcp:read objects:write receptionist:write"},
		{"mcp:use", only("contacts:read", "contacts:write", "sales:read"), "contacts:write sales:read"},
		{
			"mcp:read", without("conversations:read"),
			"appointments:read automations:read business:read contacts:read objects:read receptionist:read sales:read",
		},
		{"mcp:use", only("contacts:write"), ""}, // writing needs reading
		{"mcp:use", only("automations:run", "automations:read"), "automations:run"},
		{"contacts:write sales:read", reading, "contacts:read sales:read"},
		{"contacts:write", only("contacts:read", "contacts:write", "sales:read"), "contacts:write"},
		{"mcp:use", none, ""},
		{"", all, ""},
	} {
		have := parse(t, c.have)
		got := have.Narrow(c.keep)
		require.Equal(t, c.want, got.String(), "%s", c.have)
		require.True(t, have.Contains(got))
		for _, a := range connecttest.Areas(t).List() {
			for _, verb := range scope.Verbs() {
				if got.Includes(a, verb) {
					require.True(t, c.keep(a, verb), "%s %s was left out", a.Name, verb)
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range append(scope.Names(connecttest.Areas(f)), "", " ", "mcp:read mcp:write", "mcp:\x00", "contacts:write  objects:read", "é:read") {
		f.Add(s, uint32(0x5a5a5a5a))
	}
	f.Fuzz(func(t *testing.T, s string, kept uint32) {
		set, err := connecttest.Areas(t).Parse(s)
		if err != nil {
			require.True(t, set.IsZero())
			for i := range len(err.Error()) {
				c := err.Error()[i]
				require.True(t, c >= 0x20 && c < 0x7f && c != '"' && c != '\\', "fit for error_description")
			}
			return
		}
		again, err := connecttest.Areas(t).Parse(set.String())
		require.NoError(t, err)
		require.Equal(t, set, again)
		for _, name := range set.Names() {
			require.Contains(t, scope.Names(connecttest.Areas(t)), name)
			require.True(t, set.Allows(name))
		}
		n := 0
		keep := func(scope.Area, string) bool { n++; return kept>>(n%32)&1 == 1 }
		narrow := set.Narrow(keep)
		require.True(t, set.Contains(narrow))
		_, err = connecttest.Areas(t).Parse(narrow.String())
		require.NoError(t, err)
	})
}

func TestSwitchedOffAreaIsAsIfItHadNeverExisted(t *testing.T) {
	t.Parallel()
	for _, off := range connecttest.Areas(t).List() {
		t.Run(off.Name, func(t *testing.T) {
			t.Parallel()
			areas, err := connecttest.Areas(t).Without(off.Name)
			require.NoError(t, err)
			require.NotContains(t, areas.List(), off)
			require.Len(t, areas.List(), len(connecttest.Areas(t).List())-1)
			for _, verb := range scope.Verbs() {
				_, err := areas.Parse("mcp:read " + off.Name + ":" + verb)
				var unknown *scope.UnknownError
				require.ErrorAs(t, err, &unknown)
				for _, set := range []scope.Set{areas.Default(), areas.Everything()} {
					assert.False(t, set.Includes(off, verb))
				}
			}
			for _, name := range []string{"mcp:read", "mcp:write", "mcp:use"} {
				set, err := areas.Parse(name)
				require.NoError(t, err)
				kept := set.Narrow(func(a scope.Area, _ string) bool {
					assert.NotEqual(t, off, a)
					return true
				})
				assert.Equal(t, set, kept)
				assert.True(t, set.Allows(name))
				assert.NotContains(t, set.Pin(), off.Name+":")
				assert.Equal(t, set, areas.Unpin(set.Pin()))
				assert.Equal(t, set, areas.Unpin(parse(t, name).Pin()), "approved before")
				later := connecttest.Areas(t).Unpin(set.Pin())
				for _, verb := range scope.Verbs() {
					assert.False(t, later.Includes(off, verb), "approved while it was off")
				}
			}
			assert.True(t, areas.Unpin(parse(t, off.Name+":read").Pin()).IsZero())
		})
	}
}

func TestPublishedScopesDifferFromEachOther(t *testing.T) {
	t.Parallel()
	for except, want := range map[string]string{
		"":                                       "mcp:read mcp:write mcp:use",
		"automations":                            "mcp:read mcp:write",
		"business contacts receptionist objects": "mcp:read mcp:use",
		"business contacts receptionist objects automations": "mcp:read",
	} {
		areas, err := connecttest.Areas(t).Without(strings.Fields(except)...)
		require.NoError(t, err)
		assert.Equal(t, strings.Fields(want), areas.Published(), except)
		assert.Equal(t, areas.Published()[len(areas.Published())-1], areas.Everything().String())
	}
}

func TestAreasToSwitchOffMustExistAndLeaveOne(t *testing.T) {
	t.Parallel()
	const possible = "business, contacts, conversations, appointments, receptionist, sales, automations, objects"
	for _, name := range []string{"", "inbox", "Sales", "sales:read", "mcp", " sales", "sales,objects"} {
		_, err := connecttest.Areas(t).Without("contacts", name)
		require.ErrorContains(t, err, "must be one of "+possible, name)
	}
	names := strings.Split(possible, ", ")
	_, err := connecttest.Areas(t).Without(names...)
	require.ErrorContains(t, err, "at least one must remain")
	areas, err := connecttest.Areas(t).Without(names[1:]...)
	require.NoError(t, err)
	require.Len(t, areas.List(), 1)
	same, err := connecttest.Areas(t).Without()
	require.NoError(t, err)
	require.Equal(t, connecttest.Areas(t), same)
	twice, err := connecttest.Areas(t).Without("sales", "sales")
	require.NoError(t, err)
	require.NotContains(t, twice.Everything().Pin(), "sales")
}
